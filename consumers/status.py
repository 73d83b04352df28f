"""How the run stands: ends, lag of the buffer, groups by state, seeds, policies (design 11).

Guarantees: read from the topics alone, so it is the same whoever asks and whoever has died. Leaves out: the accounting
of single records (`audit`) and verdicts (`rolloutlog groups`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rolloutlog.buffer.rows import StateRow
from rolloutlog.consumers.index_rows import index_row
from rolloutlog.consumers.shard_view import shard_views
from rolloutlog.contract.events import Event
from rolloutlog.contract.rejection import Rejected
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.changelog import is_shard_row
from rolloutlog.kafka.connection import Connection, connect
from rolloutlog.kafka.ends import Ends, Place, ends
from rolloutlog.kafka.policy_history import read_history
from rolloutlog.kafka.reading import read_to_end
from rolloutlog.kafka.run_record import read_run

UNREADABLE = "unreadable"


async def status(settings: Settings) -> dict[str, Any]:
    """One object: `run`, `policy`, `topics` (first, end), `shards` (lag per input), `groups`, `seeds`, `skips`."""
    connection = await connect(settings)
    run = await read_run(connection)
    known = await ends(connection, list(Topic))
    history = await read_history(connection, allow_open=True)
    groups: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    candidates = 0
    async for shard in shard_views(connection, run.fit(settings)):
        opened = shard.fold.groups.values()
        groups.update("resolved" if group.group.resolved else "open" for group in opened)
        groups["ended"] += len(shard.fold.closed)
        candidates += len(shard.fold.live({}))
        skips.update({f"{name}: {reason}": number for (name, reason), number in shard.fold.census.skipped.items()})
    return {
        "run": dict(run.declared),
        "policy": history.current and list(history.current),
        "policies": {"published": len(history.published), "imported": len(history.imported)},
        "topics": _topics(known),
        "shards": [await _lag(connection, known, number) for number in range(run.partitions)],
        "groups": dict(groups),
        "candidates": candidates,
        "seeds": await _seeds(connection, run.partitions),
        "skips": dict(sorted(skips.items())),
    }


def _topics(known: Mapping[Place, Ends]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for topic in Topic:
        found = [end for (name, _), end in known.items() if name is topic]
        sums = {"first": sum(end.first for end in found), "end": sum(end.stable for end in found)}
        rows.append({"topic": topic, **sums, "open_transactions": sum(end.is_open for end in found)})
    return rows


async def _lag(connection: Connection, known: Mapping[Place, Ends], number: int) -> dict[str, Any]:
    """Records that the shard of a partition hasn't folded, per input; markers count as records."""
    state: StateRow | None = None
    async for events in read_to_end(connection, Topic.ROLLOUT_INDEX, number, allow_open=True):
        for event in events:
            if is_shard_row(event) and isinstance(row := index_row(event), StateRow):
                state = row
    read = {topic: state.next_offset(topic) if state else 0 for topic in INPUT_TOPICS}
    behind = {
        topic: max(0, known[topic, number].stable - max(read[topic], known[topic, number].first)) for topic in read
    }
    return {"partition": number, "offsets": read, "lag": behind}


async def _seeds(connection: Connection, partitions: int) -> dict[str, int]:
    kinds: Counter[str] = Counter()
    for number in range(partitions):
        async for events in read_to_end(connection, Topic.SEEDS, number, allow_open=True):
            kinds.update(map(_seed_kind, events))
    return dict(sorted(kinds.items()))


def _seed_kind(event: Event) -> str:
    """What a seed asks for, that it is cancelled, or that it can't be read."""
    try:
        kind = event.headers.seed_kind if event.headers.type == EventType.SEED_EMITTED else None
    except Rejected:
        return UNREADABLE
    return kind or ("cancelled" if event.headers.type == EventType.SEED_CANCELLED else UNREADABLE)
