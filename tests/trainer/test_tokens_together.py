"""What the rule needs, of many members at once and of each (design/trainer#columns)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.sound_values import sound_values
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.groups.announced import Announced, announced
from rolloutlog.trainer.groups.arrivals import arrivals, policies_of
from rolloutlog.trainer.groups.rollout_facts import Arrived, Bad, arrived
from rolloutlog.trainer.staleness.agents import claimed_policies
from rolloutlog.trainer.staleness.tokens_together import tokens_together
from rolloutlog.trainer.staleness.verdicts import MemberTokens
from tests.cases.hostile import hostile
from tests.cases.raw import Raw
from tests.cases.strategies import trajectories
from tests.trainer.batches_by_hand import nodes
from tests.trainer.desk import rollout

AGENTS: list[dict[str, Any]] = [{"name": "a"}, {"name": "b", "trainable": False, "reward": 0.5}]
TABLES: list[dict[str, Any]] = [{}, {"agents": AGENTS}, {"is_truncated": True}]


@st.composite
def forests(draw: st.DrawFn) -> Trajectory:
    """Of any shape, some with agents of which one doesn't train."""
    made: list[Node] = draw(nodes())
    table = draw(st.sampled_from(TABLES))
    for node in made:
        node.agent = draw(st.integers(0, 1)) if "agents" in table else 0
    return Trajectory.build(made, {"reward": 1.0, **table})


def said(tokens: MemberTokens) -> dict[str, Any]:
    """All that it holds, comparable."""
    values = {field.name: getattr(tokens, field.name) for field in fields(tokens)}
    runs = values.pop("runs")
    return values | {"loss_mask": as_list(values["loss_mask"]), "judged": as_list(values["judged"])} | {
        name: getattr(runs, name).tolist() for name in ("timelines", "versions", "lengths")
    }  # fmt: skip


def as_list(array: np.ndarray[Any, Any] | None) -> list[Any] | None:
    return None if array is None else array.tolist()


def honest() -> st.SearchStrategy[Raw]:
    """Records as producers write them."""
    slot = Slot(group="g", group_size=8, member=1)
    return st.builds(lambda one: Raw.of(Rollout(slot, one)), trajectories() | forests())


def announcements(raws: list[Raw]) -> list[tuple[Announced, Event]]:
    """Those of them that can be announced."""
    events = [raw.event(1) for raw in raws]
    return [(fact, event) for event in events if (fact := announced(event, 1)) is not None]


@given(st.lists(trajectories() | forests(), max_size=5))
def test_tokens_of_members_together_are_those_of_each(made: list[Trajectory]) -> None:
    slots = [Slot(group="g", group_size=8, member=member) for member in range(len(made))]
    together = tokens_together([Rollout(slot, one) for slot, one in zip(slots, made, strict=True)])
    assert [said(tokens) for tokens in together] == [
        said(MemberTokens.of(slot.member, 1, one)) for slot, one in zip(slots, made, strict=True)
    ]


@given(st.lists(trajectories() | forests(), max_size=5))
def test_the_policies_of_records_together_are_those_of_each(made: list[Trajectory]) -> None:
    slots = [Slot(group="g", group_size=8, member=member) for member in range(len(made))]
    raws = [Raw.of(Rollout(slot, one)) for slot, one in zip(slots, made, strict=True)]
    found = arrivals(announcements(raws))
    good = [one for one in found if isinstance(one, Arrived)]
    assert len(good) == len(found)
    assert policies_of(found) == set().union(*(claimed_policies(one.rollout.trajectory) for one in good))
    assert all(one.payload.rollout is one.rollout for one in good)


HEADERS: list[dict[str, bytes | None]] = [
    {}, {"reward": b"0.25"}, {"tokens": b"999"}, {"turns": b"7"}, {"branches": b"7"}, {"grain": b"episode"},
    {"stop_condition": b"length"}, {"status": b"aborted"}, {"status": None, "turns": None, "grain": None},
    {"oldest_policy": b"0:0"}, {"newest_policy": b"9:9"}, {"digest": b"00" * 32}, {"turns": b"01"},
    {"rollout": b"g.7"}, {"reward": b"1"},
]  # fmt: skip


@given(st.lists(st.tuples(hostile | honest(), st.sampled_from(HEADERS)), max_size=5))
def test_values_read_together_say_what_each_says(made: list[tuple[Raw, dict[str, bytes | None]]]) -> None:
    """Whatever headers and values say; and where a reader has looked at them before."""
    records = announcements([raw.but(headers) for raw, headers in made])
    for found, record in zip(arrivals(records), records, strict=True):
        assert facts_of(found) == facts_of(by_itself(*record))
    sound = [one is not None for one in sound_values([event for _, event in records])]
    marked = [(fact, replace(event, is_sound=good)) for (fact, event), good in zip(records, sound, strict=True)]
    for found, record in zip(arrivals(marked), records, strict=True):
        assert facts_of(found) == facts_of(by_itself(*record))


def by_itself(fact: Announced, event: Event) -> Arrived | Bad:
    try:
        return arrived(event)
    except Rejected as rejected:
        return Bad(fact.slot, rejected)


def facts_of(found: Arrived | Bad) -> tuple[Any, ...]:
    if isinstance(found, Bad):
        return found.slot, found.rejected.reason
    return found.rollout, found.record, found.payload.slot, found.payload.body


def test_a_record_that_is_bad_is_found_among_the_others() -> None:
    good, other = rollout(0), rollout(1, [3, 4])
    raws = [Raw.of(one) for one in (good, other, good)]
    cut = raws[1].holding((raws[1].value or b"")[:-1])
    events = [raw.event(1) for raw in raws]
    facts = [fact for event in events if (fact := announced(event, 1)) is not None]
    found = arrivals(list(zip(facts, [events[0], cut.event(1), events[2]], strict=True)))
    assert [type(one) for one in found] == [Arrived, Bad, Arrived]
