"""What is said on `run`: the declaration of the run, its settings under their digest, and cursors (design 2).

Guarantees: one key per fact, newest wins, so the compacted topic is what the run is. Leaves out: reading it back in
order (`rolloutlog.kafka.run_record`).
"""

from __future__ import annotations

from typing import Any

import orjson

from rolloutlog.contract.events import Outgoing, outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType

DECLARATION = "run"
SETTINGS, CURSOR = "settings/", "cursor/"
TRAINER = "trainer"
"""What tells the text of a trainer's settings from that of the run's."""


def _fact(kind: EventType, name: str, body: dict[str, Any], source: str, now: int) -> Outgoing:
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return outgoing(
        kind, Topic.RUN, key=name, event_id=id_of(name, text.decode()), source=source, value=text, now=now, subject=name
    )


def run_declared(settings: Settings, *, source: str, now: int) -> Outgoing:
    """`run.declared`: P, the limit of a record, and the digest of the settings that must agree."""
    body = {
        "run": settings.run_id,
        "partitions": settings.topics.partitions,
        "max_message_bytes": settings.topics.max_message_bytes,
        "settings": settings.digest,
        "blobs": settings.blobs,
    }
    return _fact(EventType.RUN_DECLARED, DECLARATION, body, source, now)


def settings_recorded(settings: Settings, *, source: str, now: int) -> Outgoing:
    """`settings.recorded`: the text of the settings that must agree, under their digest."""
    return _fact(EventType.SETTINGS_RECORDED, f"{SETTINGS}{settings.digest}", settings.agreed(), source, now)


def trainer_recorded(trainer: TrainerSettings, *, source: str, now: int) -> Outgoing:
    """`settings.recorded`: the text of a trainer's settings, under theirs; the newest are those that hold."""
    body = {TRAINER: trainer.recorded()}
    return _fact(EventType.SETTINGS_RECORDED, f"{SETTINGS}{trainer.digest}", body, source, now)


def cursor_moved(name: str, position: dict[str, Any], *, source: str, now: int) -> Outgoing:
    """`cursor.moved`: how far a feeder or importer is; goes into the transaction of what it wrote."""
    return _fact(EventType.CURSOR_MOVED, f"{CURSOR}{name}", position, source, now)
