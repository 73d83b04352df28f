"""The state of a shard is a function of its three input prefixes and of its rows, and of nothing else (design 6)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.buffer.fold import Fold
from rolloutlog.buffer.rows import StateRow, decode, encode
from rolloutlog.buffer.shard import Shard
from rolloutlog.contract.events import Event, Outgoing
from rolloutlog.contract.finals import GroupFinal, final_event
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.seeds import Anchor, Ask, Draw, Source, seed_cancelled_event
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind, Status
from tests.buffer.partition_log import NOW, PartitionLog, compacted, group_id, settings_of
from tests.buffer.said import annotated, cancelled, expired, final, fresh, rollout, seed_id, taken

SETTINGS = settings_of(
    buffer={
        "capacity": 5,
        "derivations": [
            {"name": "continue", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None}}
        ],
    }
)
NAMES, MEMBERS, ATTEMPTS = st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 2)


def forged(made: Outgoing) -> Outgoing:
    """The same headers with a value that can't be read."""
    return Outgoing(made.topic, made.key, [h for h in made.headers if h[0] != "ce_digest"], b"junk", None, NOW)


def on_rollouts() -> st.SearchStrategy[list[Outgoing]]:
    origins = st.sampled_from([{}, {}, {}, {"origin_seed": "another"}, {"kind": "eval"}, {"derivation": "continue"}])
    good = st.builds(
        lambda n, m, a, s, r, t, o: rollout(n, m, a, status=s, reward=r, turns=t, **o),
        NAMES, MEMBERS, ATTEMPTS, st.sampled_from([Status.COMPLETED, Status.COMPLETED, Status.ABORTED, Status.FAILED]),
        st.sampled_from([None, 0.0, 1.0]), st.integers(0, 2), origins,
    )  # fmt: skip
    bad = st.builds(lambda n, m, a: forged(rollout(n, m, a)), NAMES, MEMBERS, ATTEMPTS)
    note = st.builds(
        lambda n, m, a, r: annotated(n, m, a, reward=r), NAMES, MEMBERS, ATTEMPTS, st.sampled_from([None, 0.5])
    )
    take = st.builds(taken, NAMES, st.sampled_from(["w1", "w2"]), st.integers(0, 1))
    end = st.builds(
        lambda n, m, why: cancelled(n, sorted(m), why), NAMES, st.sets(MEMBERS, min_size=1),
        st.sampled_from(["refused", "attempts"]),
    )  # fmt: skip
    return st.lists(st.one_of(good, good, good, bad, note, take, end), max_size=10)


def derived(name: str, offset: int, node: int, number: int) -> Outgoing:
    source = Source(rollout="r", attempt=1, handle=f"0/{offset}/1")
    draw = Draw(number=number, rollouts=1, seeds=1, group_events=1, settings="s")
    return fresh(
        name, id=id_of("derived", name, offset, node), kind=SeedKind.CONTINUE, derivation="continue", source=source,
        anchor=Anchor(kind=AnchorKind.TOOL_CALL, node=node), draw=draw,
    )  # fmt: skip


def dropped(name: str) -> Outgoing:
    return seed_cancelled_event(
        seed=seed_id(name), group=group_id(name), group_size=2, reason="x", source="/t", now=NOW
    )


def on_seeds() -> st.SearchStrategy[list[Outgoing]]:
    origin = st.builds(fresh, NAMES)
    again = st.builds(
        lambda n, m, a: fresh(
            n, id=f"{n}{m}{a}", kind=SeedKind.REROLL, asks=[Ask(member=m, attempt=a)], origin_seed=seed_id(n)
        ),
        NAMES, MEMBERS, ATTEMPTS,
    )  # fmt: skip
    drawn = st.builds(derived, NAMES, st.integers(0, 6), st.sampled_from([3, 5]), st.integers(0, 9))
    gone = st.builds(dropped, NAMES)
    return st.lists(st.one_of(origin, again, drawn, drawn, gone), max_size=7)


def on_group_events() -> st.SearchStrategy[list[Outgoing]]:
    old = st.builds(expired, NAMES, MEMBERS, ATTEMPTS)
    end = st.builds(final, NAMES, st.integers(0, 20))
    return st.lists(st.one_of(old, end), max_size=4)


def inputs(*topics: list[Outgoing]) -> dict[Topic, list[Event]]:
    log = PartitionLog(SETTINGS)
    for records in topics:
        log.append(*records)
    return {topic: log.topics[topic] for topic in INPUT_TOPICS}


def run(topics: dict[Topic, list[Event]], random: Random) -> tuple[Fold, list[bytes]]:
    """Fold everything in some interleaving with some flushes; the state, and the rows that it wrote."""
    shard, rows = Shard.empty(0, SETTINGS), list[bytes]()
    queues = {topic: list(events) for topic, events in topics.items() if events}
    while queues:
        topic = random.choice(sorted(queues))
        shard.read(queues[topic].pop(0), now=NOW, clock=0.0)
        if not queues[topic]:
            del queues[topic]
        if random.random() < 0.3:
            rows += flushed(shard)
    return shard.fold, rows + flushed(shard)


def flushed(shard: Shard) -> list[bytes]:
    said = [record for record in shard.say(now=NOW, clock=0.0) if record.topic is Topic.ROLLOUT_INDEX]
    if said:
        shard.committed(range(len(said)))
    return [record.value for record in said]


LOGS: Any = st.builds(inputs, on_rollouts(), on_seeds(), on_group_events())


@settings(max_examples=400)
@given(LOGS, st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_the_state_depends_on_the_prefixes_never_on_their_interleaving(
    topics: dict[Topic, list[Event]], one: Random, other: Random
) -> None:
    assert run(topics, one)[0] == run(topics, other)[0]


@settings(max_examples=200)
@given(LOGS, st.randoms(use_true_random=False), st.booleans())
def test_a_shard_is_the_fold_of_its_rows_before_and_after_compaction(
    topics: dict[Topic, list[Event]], random: Random, compact: bool
) -> None:
    live, values = run(topics, random)
    rows = [decode(value) for value in values]
    fold = Fold.empty(0, SETTINGS.buffer)
    for row in compacted(rows) if compact else rows:
        if isinstance(row, StateRow) and row is rows[-1]:
            counts = (fold.resolved, fold.drawn, fold.next_draw)
            assert counts == (row.resolved, row.drawn, row.next_draw), "the shard row repeats what its rows say"
        fold.apply(row)
    assert fold == live
    assert [encode(row) for row in rows] == values


def test_headers_alone_are_kept_of_what_can_be_told_from_them() -> None:
    """A final event for a group that nobody has heard of closes it: its records come too late to be worked for."""
    late = GroupFinal(group=group_id("z"), group_size=2, timeline=0, step=1, as_of=0)
    topics = inputs([], [], [final_event(late, source="/t", now=NOW)])
    fold, _ = run(topics, Random(0))
    assert list(fold.closed) == [group_id("z")]
    assert Headers(final("z").headers).group == group_id("z")
