"""The state of a shard is a function of its three input prefixes and of its rows, and of nothing else
(design/buffer#fold)."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.rounds import LEAST
from rolloutlog.buffer.folding.row_places import FAR
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.seeds import Anchor, Ask, Draw, Source, seed_cancelled_event
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind, Status
from tests.buffer.events_by_hand import annotated, cancelled, expired, final, forged, fresh, rollout, seed_id, taken
from tests.buffer.partition_log import NOW, Owner, PartitionLog, compacted, group_id, recall, settings_of

SETTINGS = settings_of(
    buffer={
        "capacity": 5,
        "derivations": [
            {"name": "continue", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None}}
        ],
    }
)
NAMES, MEMBERS, ATTEMPTS = "ab", (0, 1), (1, 2)
NODES = (3, 5)
"""Where `tool_turns` can be resumed."""


def derived(name: str, offset: int, node: int) -> Outgoing:
    """A seed that drew a candidate of the record at `offset`."""
    source = Source(rollout="r", attempt=1, handle=f"0/{offset}/1")
    draw = Draw(number=offset + node, rollouts=1, seeds=1, group_events=1, settings="s")
    return fresh(
        name,
        id=id_of("derived", name, offset, node),
        kind=SeedKind.CONTINUE,
        derivation="continue",
        source=source,
        anchor=Anchor(kind=AnchorKind.TOOL_CALL, node=node),
        draw=draw,
    )


def again(name: str, member: int, attempt: int) -> Outgoing:
    """A seed that asks for a member again."""
    asks, made = [Ask(member=member, attempt=attempt)], f"{name}{member}{attempt}"
    return fresh(name, id=made, kind=SeedKind.REROLL, asks=asks, origin_seed=seed_id(name))


def dropped(name: str) -> Outgoing:
    """The origin seed is taken back."""
    return seed_cancelled_event(
        seed=seed_id(name), group=group_id(name), group_size=2, reason="x", source="/t", now=NOW
    )


SLOTS = list(product(NAMES, MEMBERS, ATTEMPTS))
GOOD = [rollout(*slot, turns=turns) for slot in SLOTS for turns in (1, 2)]
ODDITIES: list[dict[str, Any]] = [
    {"status": Status.ABORTED},
    {"status": Status.FAILED},
    {"reward": None},
    {"origin_seed": "another"},
    {"kind": "eval"},
    {"kind": "eval"},
    {"origin_seed": None, "origin_offset": None},
    {"derivation": "continue"},
]
ODD = [rollout(*slot, **facts) for slot in SLOTS for facts in ODDITIES]
BAD = [forged(rollout(*slot)) for slot in SLOTS]
NOTES = [annotated(*slot, reward=reward) for slot in SLOTS for reward in (None, 0.5)]
TAKES = [taken(name, worker, renewal) for name, worker, renewal in product(NAMES, ("w1", "w2"), (0, 1))]
ENDS = [cancelled(name, members, why) for name, members, why in product(NAMES, ([0], [0, 1]), ("refused", "attempts"))]
DRAWN = [derived(*where) for where in product(NAMES, range(4), NODES)]
ASKS = [
    *map(fresh, NAMES),
    *(fresh(name, run_kind="eval") for name in NAMES),
    *(again(*slot) for slot in SLOTS),
    *map(dropped, NAMES),
]
OLD = [expired(*slot) for slot in SLOTS]
FINALS = [final(name, at) for name, at in product(NAMES, (0, 3))]


def some(most: int, *pools: list[Outgoing]) -> st.SearchStrategy[list[Outgoing]]:
    """A topic of events that come from each pool alike."""
    return st.lists(st.one_of(*map(st.sampled_from, pools)), max_size=most)


def inputs(*topics: list[Outgoing]) -> dict[Topic, list[Event]]:
    log = PartitionLog(SETTINGS)
    for records in topics:
        log.append(*records)
    return {topic: log.topics[topic] for topic in INPUT_TOPICS}


def run(
    topics: dict[Topic, list[Event]], random: Random, far: int = FAR, least: int = LEAST
) -> tuple[Fold, list[bytes]]:
    """Fold everything in some interleaving with some flushes; the state, and the rows that it wrote."""
    shard, rows = Shard.empty(0, SETTINGS), list[bytes]()
    shard.fold.places.far, shard.fold.rounds.least = far, least
    shard.fold.rounds.ahead = random.randrange(2)
    shard.fold.rounds.most_rows, shard.fold.rounds.most_bytes = random.randrange(1, 4), random.choice((1, 400))
    queues = {topic: list(events) for topic, events in topics.items() if events}
    while queues:
        topic = random.choice(sorted(queues))
        shard.read(queues[topic].pop(0), now=NOW, clock=0.0)
        if not queues[topic]:
            del queues[topic]
        if random.random() < 0.3:
            rows += flushed(shard, len(rows))
    return shard.fold, rows + flushed(shard, len(rows))


def flushed(shard: Shard, first: int) -> list[bytes]:
    said = [record for record in shard.flush(now=NOW, clock=0.0) if record.topic is Topic.ROLLOUT_INDEX]
    if said:
        shard.committed(range(first, first + len(said)))
    return [record.value for record in said]


LOGS: Any = st.builds(
    inputs, some(8, GOOD, GOOD, ODD, BAD, NOTES, TAKES, ENDS), some(4, DRAWN, ASKS), some(3, FINALS, OLD, FINALS)
)


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
            counts = (fold.groups.resolved, fold.drawn, fold.next_draw)
            assert counts == (row.resolved, row.drawn, row.next_draw), "the shard row repeats what its rows say"
        fold.apply(row)
    assert fold == live
    assert [encode(row) for row in rows] == values


@settings(max_examples=200)
@given(LOGS, st.randoms(use_true_random=False))
def test_a_restore_reads_what_is_needed_and_equals_the_shard(topics: dict[Topic, list[Event]], random: Random) -> None:
    """Also where groups are carried, which hold a few rows alone."""
    live, values = run(topics, random, far=random.randrange(6), least=random.randrange(6))
    rows = {offset: decode(value) for offset, value in enumerate(values)}
    left = {row.key: offset for offset, row in rows.items()}
    restored = Shard.empty(0, SETTINGS)
    recall(restored, {offset: row for offset, row in rows.items() if left[row.key] == offset})
    assert restored.fold == live
    assert restored.fold.needed == live.needed


def test_an_eval_group_ends_where_it_was_resolved_also_if_its_seed_comes_last() -> None:
    """A final event, which it should not have, came first, and `rollouts` was read to its end."""
    topics = inputs(
        [rollout("b"), forged(rollout("b", 1)), *[rollout("a")] * 2], [fresh("b", run_kind="eval")], [final("b", 3)]
    )
    folds = [run(topics, Random(seed))[0] for seed in range(60)]
    assert {fold.groups.closed[group_id("b")].as_of for fold in folds} == {2}


def test_a_final_event_ends_a_group_that_nobody_has_heard_of() -> None:
    """Its records come too late to be worked for: they are told so in their rows, and are never sources."""
    log = PartitionLog(SETTINGS)
    log.append(final("z", as_of=0))
    owner = Owner(log)
    owner.settle()
    assert list(owner.shard.fold.groups.closed) == [group_id("z")]
    log.append(rollout("z"), rollout("z", 1))
    owner.settle()
    assert [row.dead for row in log.rows if isinstance(row, RolloutRow)] == [True, True]
    assert (owner.shard.fold.groups.opened, list(owner.shard.fold.pool.live)) == ({}, [])
