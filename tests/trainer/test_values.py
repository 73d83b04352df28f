"""Records folded by their headers against the same records read when they come (design/trainer#values).

Here the log is a list and the policies are known; the table of bad inputs runs on a broker in `test_bad_inputs`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rolloutlog.contract.events.event import Event, annotation_event, cancelled_event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.announced import Announced, announced
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.member_sets import members_in
from rolloutlog.trainer.stream.intake import Budget, Intake
from tests.cases.raw import Raw
from tests.trainer.desk import ended, live, pending_reward, rollout

SIZE = 3
KEPT, NOT_KEPT = 1 << 30, 0


@dataclass
class Policies:
    """Policies that are known already."""

    history: History = field(default_factory=live)

    async def unknown(self, claimed: Iterable[Policy]) -> Policy | None:
        return next((policy for policy in sorted(claimed) if not self.history.knows(policy)), None)


@dataclass
class Place:
    """A partition that is a list, and a trainer that reads it; `lazily` by headers."""

    lazily: bool
    events: list[Event] = field(default_factory=list[Event])

    def __post_init__(self) -> None:
        reader: Any = self if self.lazily else None
        self.intake = Intake(
            cast("Any", None), cast("Any", Policies()), {0: Assembly(0)}, None, Budget(KEPT, 10), payloads=reader
        )

    async def read_those_there(self, handles: Iterable[Handle]) -> dict[Handle, Event]:
        return {handle: self.events[handle.offset] for handle in handles}

    async def write(self, raw: Raw, *, keep: bool) -> None:
        offset = len(self.events)
        event = Event(raw.topic, 0, offset, 1_000_000 + offset, raw.key, Headers(raw.headers), raw.value)
        self.events.append(event)
        await self.intake._fold(event, keep)

    async def read_all(self) -> None:
        await self.intake.read_values(list(self.intake.assemblies[0].groups.values()))

    def groups(self) -> dict[str, Any]:
        """All that decisions depend on."""
        pendings = self.intake.assemblies[0].groups
        return {
            name: (p.group, sorted(p.tokens), sorted(p.payloads), p.complete, p.resolved, p.offset, p.touched, p.env)
            for name, p in pendings.items()
        }


LIES: dict[str, dict[str, bytes | None]] = {
    "none": {},
    "reward": {"reward": b"7.5"},
    "oldest": {"oldest_policy": b"0:9"},
    "newest": {"newest_policy": b"0:9"},
    "tokens": {"tokens": b"99"},
    "digest": {"digest": b"00" * 32},
    "stop": {"stop_condition": b"length"},
    "size": {"group_size": b"4", "reward": b"7.5"},
    "origin": {"origin_seed": b"0" * 64, "reward": b"7.5"},
    "no reward": {"reward": None},
    "no policy": {"oldest_policy": None},
    "unknown": {"newest_policy": b"0:77"},
    "env": {"env": b"other", "reward": b"7.5"},
    "sound env": {"env": b"another"},
    "sound size": {"group_size": b"4"},
    "sound origin": {"origin_seed": b"0" * 64},
}
Op = tuple[Any, ...]
members, names, attempts = st.integers(0, SIZE - 1), st.sampled_from("ab"), st.sampled_from([1, 1, 1, 2, 3])
versions = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(sorted)
kinds = st.sampled_from(["completed"] * 6 + ["aborted", "failed", "pending", "cut"])
rewards = st.sampled_from([0.0, 1.0])


def schedules(lies: st.SearchStrategy[str]) -> st.SearchStrategy[list[Op]]:
    record = st.tuples(st.just("record"), names, members, attempts, kinds, versions, rewards, lies, st.booleans())
    return st.lists(
        st.one_of(
            record,
            record,
            record,
            st.tuples(st.just("annotate"), names, members, attempts, rewards),
            st.tuples(st.just("cancel"), names, members, st.sampled_from([SIZE, SIZE, 4])),
            st.tuples(st.just("read"), names),
            st.tuples(st.just("draw"), st.integers(1, 2), st.booleans()),
            st.tuples(st.just("step")),
        ),
        max_size=30,
    )


def made(name: str, member: int, attempt: int, kind: str, seen: list[int], reward: float) -> Rollout:
    one = rollout(member, seen, group=name, size=SIZE, attempt=attempt, reward=reward, group_train=2)
    if kind == "pending":
        return pending_reward(one)
    return ended(one, Status(kind)) if kind in ("aborted", "failed") else one


def raw_of(op: Op) -> Raw | None:
    """The record that an operation writes, if it is one."""
    match op:
        case ("record", name, member, attempt, kind, seen, reward, lie, _):
            raw = Raw.of(made(name, member, attempt, kind, seen, reward)).but(LIES[lie])
            return Raw(raw.key, raw.headers, (raw.value or b"")[:-9]) if kind == "cut" else raw
        case ("annotate", name, member, attempt, reward):
            slot = made(name, member, attempt, "completed", [4], 0.0).slot
            return Raw.of(annotation_event(slot, {"reward": reward}, source="/test", now=1))
        case ("cancel", name, member, size):
            cancelled = cancelled_event(
                group=name, group_size=size, members=[member], reason="refused", source="/test", now=1
            )
            return Raw.of(cancelled)
        case _:
            return None


def _named(*kinds: str) -> list[Op]:
    """A group whose first record names an environment and is bad; what comes behind it names another one."""
    behind = [("record", "a", i, 1, kind, [4], 1.0, "sound env", False) for i, kind in enumerate(kinds, 1)]
    return [("record", "a", 0, 1, "completed", [4], 1.0, "env", True), *behind]


@pytest.mark.timeout(900)  # at a thousand examples
@given(schedules(st.sampled_from([*LIES])))
@example(_named("aborted"))
@example(_named("failed"))
@example(_named("pending"))
@example([*_named("aborted", "completed"), ("read", "a")])
async def test_once_the_values_are_read_the_groups_are_as_if_all_had_been_read_when_they_came(
    schedule: list[Op],
) -> None:
    """Whatever headers say that values don't, and in whatever order a value is looked at."""
    places = [Place(lazily=True), Place(lazily=False)]
    for op in schedule:
        raw = raw_of(op)
        for place in places:
            if raw is not None:
                await place.write(raw, keep=bool(op[-1]))
            elif op[0] == "read":
                known = place.intake.assemblies[0].groups.get(op[1])
                await place.intake.read_values([known] if known else [])
    for place in places:
        await place.read_all()
        for pending in place.intake.assemblies[0].groups.values():
            pending.let_go()
        assert place.intake.payload_bytes == 0
    assert places[0].groups() == places[1].groups()


@given(
    st.lists(st.tuples(members, attempts, versions, rewards, st.sampled_from([0, 1, 1 << 40])), max_size=5), st.data()
)
async def test_members_that_wait_are_packed_and_come_out_as_they_went_in(
    said: list[tuple[int, int, list[int], float, int]], data: st.DataObject
) -> None:
    place, facts = Place(lazily=True), list[Announced]()
    for member, attempt, seen, reward, tokens in said:
        raw = Raw.of(made("a", member, attempt, "completed", seen, reward)).but({"tokens": str(tokens).encode()})
        known = place.intake.assemblies[0].groups.get("a")
        alone = known is None or member not in members_in(known._sets.complete)
        await place.write(raw, keep=data.draw(st.booleans()))
        fact = announced(place.events[-1], 1)
        assert fact is not None
        if not alone:
            return  # the member's value is read
        facts.append(fact)
    pending = place.intake.assemblies[0].groups.get("a")
    assert (
        facts == []
        if pending is None
        else [f.by_handle for f in pending.unread.values()] == [f.by_handle for f in facts]
    )


async def picked(place: Place, sampler: Sampler, size: int, step: int) -> list[Pick]:
    while True:
        while wanted := sampler.to_read(size, step):
            await place.intake.read_values(wanted)
            settle(place, sampler, step)
        picks = sampler.pick(size, step)
        if len(picks) == size or not sampler.to_read(size, step):
            return picks


def settle(place: Place, sampler: Sampler, step: int) -> None:
    changed, place.intake.changed = place.intake.changed, set()
    for partition, group in sorted(changed):
        sampler.settle(partition, group, step)


@pytest.mark.timeout(900)  # at a thousand examples
@given(
    schedules(st.sampled_from(["none", "no reward", "no policy"])),
    st.sampled_from([{}, {"max_staleness": 2, "max_token_staleness": 1, "on_expire": "drop-group"}]),
    st.booleans(),
)
async def test_true_headers_draw_and_tell_what_values_do(
    schedule: list[Op], staleness: dict[str, Any], varied: bool
) -> None:
    """Same draws, masks, digests, expiries and drops."""
    settings = TrainerSettings.model_validate({"staleness": staleness, "drop_zero_variance": varied})
    places, step = [Place(lazily=True), Place(lazily=False)], 3
    samplers = [Sampler(p.intake.assemblies, DispatchPolicy(settings, live()), OldestFirst()) for p in places]
    for op in schedule:
        raw, seen = raw_of(op), list[Any]()
        step += op == ("step",)
        for place, sampler in zip(places, samplers, strict=True):
            if raw is not None:
                await place.write(raw, keep=bool(op[-1]))
                settle(place, sampler, step)
            size = op[1] if op[0] == "draw" else int(op[0] == "step")
            picks = await picked(place, sampler, size, step)
            seen.append([(p.final, [m.mask_runs.tolist() for m in p.verdict.members]) for p in picks])
            if op[0] == "draw" and op[2]:
                sampler.take(picks)
            told = sampler.unwritten
            seen[-1] += sorted(map(repr, told.expired)) + sorted(map(repr, told.dropped))
        assert seen[0] == seen[1]


async def test_a_value_is_read_once_it_is_drawn_and_not_before() -> None:
    place = Place(lazily=True)
    sampler = Sampler(place.intake.assemblies, DispatchPolicy(TrainerSettings(), live()), OldestFirst())
    for member in range(SIZE):
        await place.write(Raw.of(made("a", member, 1, "completed", [4], float(member))), keep=True)
        settle(place, sampler, 5)
    pending = place.intake.assemblies[0].groups["a"]
    assert (sampler.settled, len(pending.unread), len(pending.tokens)) == (1, 3, 0)
    (pick,) = await picked(place, sampler, 1, 5)
    assert (len(pending.unread), len(pending.tokens)) == (0, 3)
    assert [m.trainable_tokens for m in pick.verdict.members] == [1, 1]
