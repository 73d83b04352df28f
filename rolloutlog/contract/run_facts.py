"""What is said on `run`: the declaration of the run, its settings under their digest, and cursors (design 2).

Guarantees: one key per fact, newest wins, so the compacted topic is what the run is. Leaves out: reading it back in
order (`rolloutlog.kafka.run_record`).
"""

from __future__ import annotations

from typing import Any

import orjson

from rolloutlog.contract.events import Outgoing, outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType

DECLARATION = "run"


def _fact(kind: EventType, name: str, body: dict[str, Any], source: str, now: int) -> Outgoing:
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return outgoing(
        kind, Topic.RUN, key=name, event_id=id_of(name, text.decode()), source=source, value=text, now=now, subject=name
    )


def run_declared(settings: Settings, *, source: str, now: int) -> Outgoing:
    """`run.declared`: P, B, W and the digest of the settings that must agree."""
    body = {
        "run": settings.run_id,
        "partitions": settings.topics.partitions,
        "batch_groups": settings.trainer.batch_groups,
        "sync_period": settings.trainer.sync_period,
        "max_message_bytes": settings.topics.max_message_bytes,
        "settings": settings.digest,
        "blobs": settings.blobs,
    }
    return _fact(EventType.RUN_DECLARED, DECLARATION, body, source, now)


def settings_recorded(settings: Settings, *, source: str, now: int) -> Outgoing:
    """`settings.recorded`: the text of the settings under their digest."""
    return _fact(EventType.SETTINGS_RECORDED, f"settings/{settings.digest}", settings.agreed(), source, now)


def cursor_moved(name: str, position: dict[str, Any], *, source: str, now: int) -> Outgoing:
    """`cursor.moved`: how far a feeder or importer is; goes into the transaction of what it wrote."""
    return _fact(EventType.CURSOR_MOVED, f"cursor/{name}", position, source, now)
