"""How the run stands: the training run first, then the buffer, its topics and who owns what (design/commands#facts).

Guarantees: read from shard rows, ends, policies and the last minutes of `group-events`: never from `rollouts` or
`seeds`, however long they are; the same whoever asks and whoever has died. Leaves out: feeders
(`rolloutlog.producers.feeding.feeder_view`), the accounting of single records (`audit`), verdicts (`rolloutlog
groups`), and what no shard has folded yet, which is told as lag.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rolloutlog.buffer.folding.tally import CANDIDATES, OPEN, RESOLVED, by_kind
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.shard.candidate_sampler import DrawLack
from rolloutlog.consumers.views.draw_lacks import draw_lacks
from rolloutlog.consumers.views.recent import read_recent
from rolloutlog.contract.errors import NotAllowed, SettingsError
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.policies import History
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.trainer_settings import TrainerSettings
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.client.owners import owners
from rolloutlog.kafka.live_watermarks import live_watermarks
from rolloutlog.kafka.loop.index_reader import read_index
from rolloutlog.kafka.read.ends import Ends, Place, ends, first_since
from rolloutlog.kafka.read.policy_log import PolicyFold, read_policy_log
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.trainer.dispatch.decision import DispatchPolicy

RECENT_S, RATE_S = 300, 60


async def status(settings: Settings) -> dict[str, Any]:
    """One object: `run`, `policy`, `groups`, `trainer`, `recent`, `rates`, `owners`, `seeds`, `drawn`, `candidates`,
    `draw_lacks`, `topics`, `shards`, `skips`, `evicted` and `source`; `groups` is null where no buffer has folded
    anything, `trainer` where no step was closed, `source` where the run draws on none."""
    connection = await connect(settings, Role.PEOPLE)
    run = await read_run(connection)
    trainer = run.trainer_settings() or settings.trainer
    known = await ends(connection, list(Topic))
    policies, now = await read_policy_log(connection, allow_open=True), time.time_ns() // 1_000_000
    since = await first_since(connection, _of(known, Topic.GROUP_EVENTS), now - RECENT_S * 1000)
    recent = await read_recent(connection, policies.history, known, since)
    states = await _states(connection, known, run.partitions)
    numbers = Counter[str]()
    for state in states.values():
        numbers.update(state.census)
    kinds = by_kind(numbers)
    return {
        "run": dict(run.declared) | {"batch_groups": trainer.batch_groups, "sync_period": trainer.sync_period},
        **_policies(policies, now),
        "groups": _groups(numbers, kinds["ended"]) if states else None,
        "trainer": _trainer(live_watermarks(run, policies), trainer, policies.history, run),
        "recent": {"seconds": RECENT_S, **recent.as_json()},
        "rates": await _rates(connection, known, now),
        "owners": await _owners(connection),
        "seeds": dict(sorted(kinds["seeds"].items())),
        "drawn": dict(sorted(kinds["drawn"].items())),
        "candidates": numbers[CANDIDATES],
        "draw_lacks": dict(sorted(_lacks(states, run, settings, trainer).items())),
        "topics": _topics(known),
        "shards": [_lag(known, states.get(number), number) for number in range(run.partitions)],
        "skips": dict(sorted(kinds["skipped"].items())),
        "evicted": dict(sorted(kinds["evicted"].items())),
        "source": _source(run, states, live_watermarks(run, policies)),
    }


def _lacks(
    states: Mapping[int, StateRow], run: RunRecord, settings: Settings, trainer: TrainerSettings
) -> Counter[DrawLack]:
    """What shards lack to derive more; nothing where the run's derivations aren't installed here."""
    try:
        buffer = run.own_buffer(settings).buffer
    except SettingsError:
        return Counter()
    return draw_lacks(states, buffer, trainer, run.partitions)


def _source(run: RunRecord, states: Mapping[int, StateRow], marks: Watermarks | None) -> dict[str, Any] | None:
    """The namespace that the run draws on, and how many of its offsets aren't folded yet; offline, aren't done with in
    the pass that the trainer is at."""
    if (source := run.source) is None:
        return None
    ranges = enumerate(zip(source.begins, source.ends, strict=True))
    left = sum(end - (_folded(states.get(number), begin, end)) for number, (begin, end) in ranges)
    said = {"namespace": source.namespace, "manifest": source.manifest, "ends": source.ends}
    if not source.offline:
        return said | {"offline": False, "left": left}
    lows = source.begins if marks is None else [mark.low for mark in marks.partitions]
    left = sum(end - max(low, begin) for low, begin, end in zip(lows, source.begins, source.ends, strict=True))
    return said | {"offline": True, "pass": 1 if marks is None else marks.pass_number, "left": left}


def _folded(state: StateRow | None, begin: int, end: int) -> int:
    """Up to where the shard of a partition has folded the source."""
    if state is None:
        return begin
    return end if state.source is None else state.source


def _policies(policies: PolicyFold, now: int) -> dict[str, Any]:
    history, newest = policies.history, policies.current
    return {
        "policy": history.current and list(history.current),
        "policy_age_s": None if newest is None else max(0, now - newest.published_ms) / 1000,
        "policies": {"published": len(history.published), "imported": len(history.imported)},
    }


def _trainer(
    marks: Watermarks | None, settings: TrainerSettings, history: History, run: RunRecord
) -> dict[str, Any] | None:
    """How groups stood for the trainer when it closed its last step, and whether it `lacks_weights`: what the current
    policy samples would be too old for the next one (design/trainer#doomed). None where it closed none."""
    if marks is None:
        return None
    dispatch, step = DispatchPolicy(settings, history, steps=run.trained_source is None), marks.step + 1
    lacks = all(dispatch.doomed(step, env) for env in (None, *settings.environments))
    return {"timeline": marks.timeline, "step": marks.step, "groups": marks.groups, "lacks_weights": lacks}


def _groups(numbers: Mapping[str, int], ended: Mapping[str, int]) -> dict[str, Any]:
    return {
        "open": numbers.get(OPEN, 0),
        "resolved": numbers.get(RESOLVED, 0),
        "ended": sum(ended.values()),
        "ends": dict(sorted(ended.items())),
    }


async def _states(connection: Connection, known: Mapping[Place, Ends], partitions: int) -> dict[int, StateRow]:
    """The newest shard row of each partition that has one."""
    index = {number: known[Topic.ROLLOUT_INDEX, number] for number in range(partitions)}
    found = (await read_index(connection, index)).values()
    return {index.partition: index.state for index in found if index.state is not None}


async def _rates(connection: Connection, known: Mapping[Place, Ends], now: int) -> dict[str, int]:
    """Records of the last minute by input topic; markers of transactions count as records."""
    places = [place for topic in INPUT_TOPICS for place in _of(known, topic)]
    since = await first_since(connection, places, now - RATE_S * 1000)
    return {
        topic: sum(max(0, known[place].stable - offset) for place, offset in since.items() if place[0] is topic)
        for topic in INPUT_TOPICS
    }


async def _owners(connection: Connection) -> list[dict[str, Any]] | None:
    """Members of the run's groups; None where this user may not see them."""
    try:
        return [asdict(owner) for owner in await owners(connection)]
    except NotAllowed:
        return None


def _of(known: Mapping[Place, Ends], topic: Topic) -> list[Place]:
    return [place for place in known if place[0] is topic]


def _topics(known: Mapping[Place, Ends]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for topic in Topic:
        found = [known[place] for place in _of(known, topic)]
        sums = {"first": sum(end.first for end in found), "end": sum(end.stable for end in found)}
        rows.append({"topic": topic, **sums, "open_transactions": sum(end.is_open for end in found)})
    return rows


def _lag(known: Mapping[Place, Ends], state: StateRow | None, number: int) -> dict[str, Any]:
    """Records that the shard of a partition hasn't folded, per input; markers count as records."""
    read = {topic: state.next_offset(topic) if state else 0 for topic in INPUT_TOPICS}
    behind = {
        topic: max(0, known[topic, number].stable - max(read[topic], known[topic, number].first)) for topic in read
    }
    return {"partition": number, "offsets": read, "lag": behind}
