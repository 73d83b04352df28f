"""Of the candidates that may be drawn now the same are drawn as by the plain rule over a list (design/buffer#draws;
decisions/replay#82)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.buffer.derivations.protocol import AnchorPoint, Balanced
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.packed_anchors import pack
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import AnnotationRow, CancelRow, FinalRow, Row, SeedRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.candidate_sampler import CandidateDraw, CandidateSampler, DrawLack
from rolloutlog.buffer.sources.candidates import Candidate, CandidateKey
from rolloutlog.buffer.sources.draws import Lot, rank_in_lots
from rolloutlog.contract.events.seeds import Anchor, Draw, Seed, Source
from rolloutlog.contract.ids import id_of, rank_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind, Status
from rolloutlog.contract.wire.rejection import Rejected
from tests.buffer.events_by_hand import annotated, rollout
from tests.buffer.partition_log import Owner, PartitionLog, restored, settings_of
from tests.buffer.test_census import told

JUDGED = {"name": "judge", "derive": {"type": "judge"}, "max_draws": 2}
DERIVATIONS = (
    {"name": "go-on", "derive": {"type": "continue", "anchor": "tool-call", "max_anchors": None}},
    JUDGED,
    {"name": "wrong", "derive": {"type": "recheck"}, "select": {"max_source_reward": 0.5}, "max_draws": 3},
)
SHARES = 0.25, 0.25, 0.5


def settings_with(derivations: Sequence[dict[str, Any]]) -> Settings:
    buffer = {"ratio": 1e6, "capacity": 9, "derivations": [*derivations]}
    return settings_of(buffer=buffer, trainer={"max_open": 4000})


TOGETHER = settings_with(DERIVATIONS)
BY_SHARES = settings_with([{**own, "share": part} for own, part in zip(DERIVATIONS, SHARES, strict=True)])
PACKED = pack(
    [AnchorPoint(AnchorKind.TOOL_CALL, node, 9) for node in (3, 5)]
    + [AnchorPoint(kind, 6, 9) for kind in ("recheck", "judge")]
)
SLOTS = list(product("abcd", (0, 1), (1, 2)))


@dataclass
class Schedule:
    """A fold, a sampler over it, and what happens to them."""

    settings: Settings
    fold: Fold = field(init=False)
    sampler: CandidateSampler = field(init=False)
    seeds: int = 0
    emitted: list[CandidateDraw] = field(default_factory=list)

    def __post_init__(self) -> None:
        """A group that is resolved, of which nothing is derived: so that as much may be derived as one likes."""
        self.fold = Fold.empty(0, self.settings.buffer)
        self.sampler = CandidateSampler(self.settings, "s", self.settings.trainer)
        self.record(("resolved", 0, 1), 1.0, group_size=1, packed=b"")

    def apply(self, topic: Topic, row: Row) -> None:
        with suppress(Rejected):
            self.fold.apply(row)
        self.fold.passed(topic, self.fold.next_offsets[topic] + 1)

    @property
    def offset(self) -> int:
        return self.fold.next_offsets[Topic.ROLLOUTS]

    def record(
        self, slot: tuple[str, int, int], reward: float | None, group_size: int = 2, packed: bytes = PACKED
    ) -> None:
        """A record; said before, it is a duplicate, or a conflict."""
        group, member, attempt = slot
        row = RolloutRow(
            offset=self.offset, size=9, timestamp=1, group=group, group_size=group_size, needed=group_size,
            member=member, attempt=attempt, status=Status.COMPLETED, sha256=b"Z" * 32, reward=reward, env="sums",
            packed=packed,
        )  # fmt: skip
        self.apply(Topic.ROLLOUTS, row)

    def annotate(self, slot: tuple[str, int, int], reward: float | None) -> None:
        group, member, attempt = slot
        row = AnnotationRow(self.offset, f"{self.offset}", group, 2, member, attempt, True, reward)
        self.apply(Topic.ROLLOUTS, row)

    def end(self, group: str, as_of: int) -> None:
        self.apply(Topic.GROUP_EVENTS, FinalRow(self.fold.next_offsets[Topic.GROUP_EVENTS], group, group, as_of, None))

    def refuse(self, number: int) -> None:
        """The group of a seed that was emitted is refused, whether the seed was folded or not."""
        if number < self.seeds:
            self.apply(Topic.ROLLOUTS, CancelRow(self.offset, f"{number}", f"derived-{number}", 2, [0, 1], "refused"))

    def others_draw(self, offset: int, node: int) -> None:
        """A seed of another owner, of a record that may come later."""
        names = {3: "go-on", 5: "go-on", 6: "judge"}
        self._seed((offset, names[node], node), Draw(number=0, rollouts=1, seeds=1, group_events=1, settings="s"))

    def emit(self) -> None:
        """The first of the queue is emitted."""
        if self.sampler.queue:
            self.emitted.append(drawn := self.sampler.queue[0])
            self.sampler.mark_emitted(drawn)

    def read_back(self) -> None:
        """What was emitted first is folded."""
        if self.emitted:
            drawn = self.emitted.pop(0)
            self._seed(drawn.key, drawn.draw)
            self.sampler.acknowledge(drawn.draw, self.fold.pool)

    def _seed(self, key: CandidateKey, draw: Draw) -> None:
        offset, name, node = key
        number, self.seeds = self.seeds, self.seeds + 1
        seed = Seed(
            id=id_of("seed", number), kind=SeedKind.CONTINUE, group=f"derived-{number}", group_size=2, env="sums",
            derivation=name, source=Source(rollout="r", attempt=1, handle=f"0/{offset}/9"), draw=draw,
            anchor=Anchor(kind="x", node=node),
        )  # fmt: skip
        self.apply(Topic.SEEDS, SeedRow(number, seed.id, seed.group, seed))

    def discard(self, rank: int) -> None:
        """No seed can be made of one in the queue."""
        if self.sampler.queue:
            self.fold.pool.discard(self.sampler.queue[rank % len(self.sampler.queue)].candidate)
            self.sampler.clear(self.fold.pool)

    def sample(self) -> None:
        """Draw, and compare with the plain rule."""
        before = len(self.sampler.queue)
        expected = self._expected()
        self.sampler.sample(self.fold)
        drawn = [(each.draw.number, each.key, each.earlier) for each in self.sampler.queue[before:]]
        assert drawn == expected[: len(drawn)]
        assert len(drawn) == len(expected) or len(self.sampler.queue) == 32 or self.sampler.dry_at == self.fold.changes

    def _expected(self) -> list[tuple[int, CandidateKey, int]]:
        """The plain rule: make the list anew before each draw."""
        held = Counter(one.key for one in self.sampler.emitted.values())
        held.update(one.key for one in self.sampler.queue)
        number, found = max(self.fold.next_draw, self.sampler.next_number), list[tuple[int, CandidateKey, int]]()
        while True:
            lots = by_plain_rule(self.fold, held)
            live = [one for lot in lots for one in lot]
            if all(one.discarded for one in live):
                return found
            while (one := live[self._rank(lots, number)]).discarded:
                number += 1
            found.append((number, one.key, one.draws + held[one.key]))
            held[one.key] += 1
            number += 1

    def _rank(self, lots: list[list[Candidate]], number: int) -> int:
        if self.settings is BY_SHARES:
            shares = SHARES[0], SHARES[2], SHARES[1]  # those that aren't balanced come first
            return rank_in_lots([Lot(part, len(lot)) for part, lot in zip(shares, lots, strict=True)], "0", 0, number)
        return rank_of("draw", "0", 0, number) % sum(map(len, lots))


def by_plain_rule(fold: Fold, held: Counter[CandidateKey]) -> list[list[Candidate]]:
    """All that may be drawn, from the whole pool, in the order of their ranks; apart what has a share of its own."""
    plain: dict[str, list[Candidate]] = {}
    right: list[Candidate] = []
    wrong: list[Candidate] = []
    known = {each.name: each for each in fold.settings.derivations}
    for source, one in fold.pool:
        own, reward = known[one.derivation], source.reward
        high = own.select.max_source_reward
        in_band = high is None or (reward is not None and reward <= high)
        if source.dead or one.refused or one.draws + held[one.key] >= own.max_draws or not in_band:
            continue
        if not isinstance(own.derive, Balanced):
            plain.setdefault(one.derivation if own.share else "", []).append(one)
        elif reward is not None:
            (right if own.derive.was_right(reward) else wrong).append(one)
    apart = ("go-on", "wrong") if any(own.share for own in known.values()) else ("",)
    balanced = [one for pair in zip(right, wrong, strict=False) for one in pair]
    return [*(plain.get(name, []) for name in apart), balanced]


def actions() -> st.SearchStrategy[list[Callable[[Schedule], None]]]:
    slots, rewards = st.sampled_from(SLOTS), st.sampled_from([None, 0.0, 1.0])
    numbers, offsets = st.integers(0, 9), st.integers(0, 20)

    def calls(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Callable[[Schedule], None]]:
        return st.tuples(*arguments).map(lambda given: partial(_call, name, given))

    some = [
        calls("record", slots, rewards),
        calls("annotate", slots, rewards),
        calls("end", st.sampled_from("abcd"), offsets),
        calls("refuse", numbers),
        calls("others_draw", offsets, st.sampled_from([3, 5, 6])),
        calls("emit"),
        calls("read_back"),
        calls("discard", numbers),
        calls("sample"),
    ]
    return st.lists(
        st.one_of(some[0], some[0], some[0], *some, some[-1], some[-1], some[5], some[6]), min_size=20, max_size=60
    )


def _call(name: str, given: Sequence[object], schedule: Schedule) -> None:
    getattr(schedule, name)(*given)


@settings(max_examples=400)
@given(st.sampled_from([TOGETHER, BY_SHARES]), actions())
def test_draws_are_those_of_the_plain_rule_whatever_happens_between_them(
    given: Settings, todo: list[Callable[[Schedule], None]]
) -> None:
    """Also where derivations have shares (decisions/replay#2)."""
    schedule = Schedule(given)
    for action in todo:
        action(schedule)
    schedule.sample()
    held = Counter(one.key for one in [*schedule.sampler.emitted.values(), *schedule.sampler.queue])
    plain = [one.key for lot in by_plain_rule(schedule.fold, held) for one in lot]
    assert [one.key for one in schedule.fold.pool.live] == plain


def test_who_takes_what_is_discarded_leaves_the_others_to_be_drawn() -> None:
    schedule = Schedule(settings_with([{"name": "recheck", "derive": {"type": "recheck"}}]))
    pool = schedule.fold.pool
    for member in (0, 1):
        schedule.record(("a", member, 1), 1.0)
    first, second = pool.live
    candidate = pool.candidate(first.key)
    assert candidate is not None
    pool.discard(candidate)
    assert pool.take(0)[1] is candidate
    assert not pool.live.is_dry
    assert [one.key for one in pool.live] == [second.key]


def judged(*rewards: float | None, ratio: float = 10.0) -> tuple[PartitionLog, Owner]:
    """A log of groups of two, the first without a reward, the second with that one; and its owner, at rest."""
    log = PartitionLog(settings_of(buffer={"ratio": ratio, "derivations": [JUDGED]}, trainer={"max_open": 400}))
    for at, reward in enumerate(rewards):
        log.append(rollout(f"{at}", reward=None), rollout(f"{at}", 1, reward=reward))
    owner = Owner(log)
    owner.settle()
    return log, owner


class TestBalance:
    """As many right sources as wrong ones are judged, as a view (decisions/replay#82)."""

    def test_as_many_right_as_wrong_ones_may_be_drawn_and_the_others_wait(self) -> None:
        _, owner = judged(1.0, 1.0, 0.0, 1.0, None, 0.0, ratio=0.0)
        pool = owner.shard.fold.pool
        assert [one.offset for one in pool.live] == [1, 5, 3, 11], "right and wrong in turn, of either the first two"
        assert pool.size == 12, "all are kept"

    def test_one_side_alone_is_not_judged_and_says_so_until_the_other_comes(self) -> None:
        log, owner = judged(1.0, 1.0)
        assert log.seeds == []
        assert owner.shard.fold.numbers()[f"skipped judge: {Skip.ONE_SIDED}"] == 2
        log.append(annotated("1", 0, reward=0.0))
        owner.settle()
        assert f"skipped judge: {Skip.ONE_SIDED}" in told(log), "one right source is left"
        assert 2 in {seed.source.where.offset for seed in log.seeds if seed.source}, "a late reward is a side too"
        assert restored(log).numbers() == told(log)


def test_why_nothing_is_drawn_is_told_by_the_bound_that_holds() -> None:
    """No candidate, the ratio, or the derived part of open groups (design/buffer#empty)."""
    own = Settings.model_validate({
        "topics": {"partitions": 1},
        "buffer": {"ratio": 2, "derivations": [{"name": "recheck", "derive": {"type": "recheck"}}]},
        "trainer": {"batch_groups": 4, "max_open": 8},
    })  # fmt: skip
    schedule = Schedule(own)
    sampler, fold = schedule.sampler, schedule.fold
    assert sampler.lack(fold) is DrawLack.CANDIDATE
    for number in range(6):
        schedule.record((f"g-{number}", 0, 1), 1.0, group_size=1)
    assert sampler.lack(fold) is None
    fold.drawn = 99
    assert sampler.lack(fold) is DrawLack.RATIO
    fold.drawn = 0
    sampler.trainer = own.trainer.model_copy(update={"max_open": 4, "overcommit": False})
    assert sampler.lack(fold) is DrawLack.OPEN_GROUPS
