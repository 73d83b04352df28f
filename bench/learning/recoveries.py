"""How long a part of a live loop was away after it was killed, by what it writes.

Guarantees: of times on the log alone: a part is back with the first record that it writes after the kill, so its start,
what it reads again and what it waits for count. Leaves out: records that nobody wrote for want of work, which counts
as away; what the others did meanwhile.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.ends import partition_counts
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.producers.environments.environment_table import environment_named
from rolloutlog.supervisor.services import ServiceRole

AFTER_S = 0.5
"""No successor writes as soon as that: it rests for a second, or starts a JVM; a record on its way when its writer was
killed may be stamped later than the kill."""
BROKER = "broker"
WRITTEN = {
    BROKER: Topic.ROLLOUTS,
    ServiceRole.WORKER.name.lower(): Topic.ROLLOUTS,
    ServiceRole.FEEDER.name.lower(): Topic.SEEDS,
    ServiceRole.BUFFER.name.lower(): Topic.ROLLOUT_INDEX,
    ServiceRole.TRAINER.name.lower(): Topic.GROUP_EVENTS,
}
"""What each writes as soon as it works."""


def role_of(name: str) -> str:
    """Role of a process by its name, such as worker of `worker-0`."""
    return name.partition("-")[0]


async def recoveries(settings: Settings, kills: Sequence[tuple[float, str]]) -> list[tuple[str, float | None]]:
    """Seconds after which each that was killed wrote again; None where it didn't until the end."""
    topics = {WRITTEN[role_of(name)] for _, name in kills}
    written = {topic: await _written(settings, topic) for topic in topics}
    return [(name, _back(written[WRITTEN[role_of(name)]], _sources(settings, name), at)) for at, name in kills]


async def _written(settings: Settings, topic: Topic) -> dict[str, list[float]]:
    """When records were written, by their source; of rollouts only what was made."""
    connection, found = await connect(settings), dict[str, list[float]]()
    for number in range((await partition_counts(connection, [topic]))[topic]):
        async for events in read_to_end(connection, topic, number, allow_open=True):
            for event in events:
                if _is_work(event):
                    found.setdefault(event.headers.source or "", []).append(event.timestamp / 1000)
    return {source: sorted(times) for source, times in found.items()}


def _is_work(event: Event) -> bool:
    return event.topic is not Topic.ROLLOUTS or event.headers.type in STATUS_OF


def _sources(settings: Settings, name: str) -> str:
    """How sources of what it writes begin."""
    role, _, number = name.partition("-")
    if role == "feeder":
        return f"/feed/{environment_named(settings.loop.environments[int(number)]).name}"
    return f"/workers/{name}-" if role == "worker" else ""


def _back(written: Mapping[str, Sequence[float]], source: str, killed: float) -> float | None:
    places = ((times, bisect(times, killed + AFTER_S)) for name, times in written.items() if name.startswith(source))
    later = [times[place] for times, place in places if place < len(times)]
    return min(later) - killed if later else None
