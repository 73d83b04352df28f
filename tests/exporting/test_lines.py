"""A line of either layout, read by the importer: what comes back is what was there (design/eras#export)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.events.event import rollout_event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.numbers import is_natural, is_reward
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import AGENT, Trajectory
from rolloutlog.contract.vocabulary import RunKind, SeedKind, Status
from rolloutlog.formats.foreign.normal_line import NormalLine
from rolloutlog.formats.foreign.recorded import Origin, TraceIdentity
from rolloutlog.formats.writers.episode_lines import episode_of
from rolloutlog.formats.writers.july_records import record_of, row_of
from rolloutlog.formats.writers.parquet_rows import row_of as table_row
from rolloutlog.formats.writers.standing import StandingRollout
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.importing.files.lines import Line
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.outgoing import slot_of
from rolloutlog.producers.importing.parsing.normalise import count, normalise
from rolloutlog.producers.importing.placing.census import Census
from rolloutlog.producers.importing.placing.known import Known
from tests.cases.raw import Raw
from tests.cases.rollouts import sound
from tests.cases.strategies import rollouts

Write = Callable[[StandingRollout], bytes]
LAYOUTS: dict[str, Write] = {
    "episodes": lambda standing: episode_of(standing, trained=False),
    "what was trained": lambda standing: episode_of(standing, trained=True),
    "records": record_of,
}
SPAN = FileSpan("rollouts/step_7/train/all/traces.jsonl", Origin(step=7, env="elsewhere"))
each_layout = pytest.mark.parametrize("write", LAYOUTS.values(), ids=LAYOUTS)


def standing_of(rollout: Rollout, notes: dict[str, Any] | None = None) -> StandingRollout:
    return StandingRollout(Raw.of(rollout_event(rollout, source="/tests", now=0)).event(), rollout, notes or {})


def read(text: bytes) -> NormalLine:
    normal = normalise(Line(0, text + b"\n"), SPAN)
    assert normal.fault is None, normal.fault
    return normal


def slot_again(text: bytes) -> Slot:
    """The slot that an import of this line alone fills."""
    identity, normal = count(Line(0, text + b"\n"), SPAN), read(text)
    assert isinstance(identity, TraceIdentity)
    assert normal.rollout is not None
    assert normal.rollout.identity == identity
    census = Census()
    census.add(identity, SPAN)
    census.number(Known())
    place = census.place_of(identity, Known())
    assert place is not None
    return slot_of(normal.rollout, place, 1)


def elsewhere(slot: Slot) -> Slot:
    """The same slot on another log: seeds and handles of this one mean nothing there, and its id is its own."""
    return slot._replace(
        attempt=1,
        trace=slot.trace or slot.rollout,
        source_file=None,
        origin_seed=None,
        origin_offset=None,
        source_handle=None,
    )


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
READ_BY_LAYOUTS = (
    "rewards", "task", "info", "metrics", "timing", "errors", "replay_task", "source_reward", "source_step", "agent",
    "extra_usage", "id", "ok", "is_completed", "episode", "group_id", "policy_version", "rolloutlog", "calls", "tools",
)  # fmt: skip


@st.composite
def said(draw: st.DrawFn) -> Rollout:
    """Any rollout: of several agents whose turns alternate, of several policies, and with records that say anything."""
    made = draw(rollouts(optional=draw(st.booleans())))
    facts: dict[str, Any] = draw(st.dictionaries(st.sampled_from(READ_BY_LAYOUTS), json, max_size=4))
    for name, kind in (("task", dict), ("errors", list), ("info", dict), ("source_reward", float)):
        if not isinstance(facts.get(name), kind) or (kind is float and not is_reward(facts[name])):
            facts.pop(name, None)
    if not is_natural(facts.get("source_step")):
        facts.pop("source_step", None)
    trajectory = made.trajectory
    nodes, agents = trajectory.nodes.copy(), draw(st.integers(1, 3))
    if len(nodes) and agents > 1:
        nodes[:, AGENT] = draw(st.lists(st.integers(0, agents - 1), min_size=len(nodes), max_size=len(nodes)))
        facts["agents"] = [{"name": f"agent {number}", "trainable": number == 1} for number in range(agents)]
    text = orjson.dumps({**trajectory.record, **facts})
    own = Trajectory(
        record_text=text,
        token_ids=trajectory.token_ids,
        logprobs=trajectory.logprobs,
        mask=trajectory.mask,
        segments=trajectory.segments,
        nodes=nodes,
        columns=trajectory.columns,
    )
    return replace(made, trajectory=own)


@each_layout
@given(rollout=said(), notes=st.dictionaries(st.sampled_from(["advantage", "judge", "trained", "entropies"]), json))
def test_every_rollout_comes_back_as_it_was(write: Write, rollout: Rollout, notes: dict[str, Any]) -> None:
    """Value to the byte, slot, status, notes and policies; also what the layout has no place for."""
    standing = standing_of(rollout, notes)
    text = write(standing)
    found = read(text).rollout
    assert found is not None
    assert found.digest == digest_of(value.encode(rollout.trajectory))
    assert (found.status, found.notes, found.step) == (rollout.status, notes, None)
    assert slot_again(text) == elsewhere(rollout.slot)
    assert set(found.policies) == set(rollout.trajectory.runs.policies() if len(rollout.trajectory.segments) else ())
    orjson.loads(row_of(standing, 0, text))


def derived(member: int, depth: int = 2) -> Rollout:
    return sound(
        "ab" * 16,
        member,
        derivation="continue",
        seed_kind=SeedKind.CONTINUE,
        source_id="cd" * 16 + ".3",
        depth=depth,
        kind=RunKind.EVAL,
        group_train=1,
    )


@each_layout
def test_two_members_of_one_source_are_two(write: Write) -> None:
    """Each has its own id and its source's; lineage, depth and kind are those that they had."""
    slots = [slot_again(write(standing_of(derived(member)))) for member in range(2)]
    assert [slot.trace for slot in slots] == ["ab" * 16 + ".0", "ab" * 16 + ".1"]
    assert {slot.source_id for slot in slots} == {"cd" * 16 + ".3"}
    assert slots == [elsewhere(derived(member).slot) for member in range(2)]


@each_layout
def test_the_policy_of_each_token_comes_back(write: Write) -> None:
    found = read(write(standing_of(sound("g")))).rollout
    assert found is not None
    assert found.policies == [Policy(0, 0), Policy(0, 1)]
    assert value.decode(found.body).segments.tolist() == sound("g").trajectory.segments.tolist()


@each_layout
@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
def test_a_pending_reward_stays_pending_and_a_late_one_late(write: Write, status: Status) -> None:
    pending = replace(sound("g", reward=None), status=status)
    found = read(write(standing_of(pending))).rollout
    assert found is not None
    assert (found.reward, found.status, found.notes) == (None, status, {})
    scored = read(write(standing_of(pending, {"reward": 0.25}))).rollout
    assert scored is not None
    assert (scored.reward, scored.notes) == (None, {"reward": 0.25})


@each_layout
def test_a_line_that_was_edited_is_read_as_it_stands_in_its_place(write: Write) -> None:
    """Who changes a reward in a file means it; group and member stay."""
    line = orjson.loads(write(standing_of(sound("g", 1))))
    trace = line["traces"][0] if "traces" in line else line
    trace["rewards"] = {"mine": 0.125}
    text = orjson.dumps(line)
    found = read(text).rollout
    assert found is not None
    assert found.reward == 0.125
    assert np.array_equal(value.decode(found.body).token_ids, sound("g").trajectory.token_ids)
    assert slot_again(text) == elsewhere(sound("g", 1).slot)


@each_layout
def test_a_derived_line_is_known_for_derived_by_itself(write: Write) -> None:
    """Its task is within the one that a replay environment would write, also where somebody edited the line
    (decisions/replay#23, #85 and #88)."""
    said = {"task": {"idx": 3}, "source_reward": 0.25, "source_step": 4}
    made = derived(1)
    made.trajectory = with_facts(made.trajectory, said)
    line = orjson.loads(write(standing_of(made)))
    trace = line["traces"][0] if "traces" in line else line
    task = trace["task"].get("data", trace["task"])
    assert task == {
        "kind": "continue",
        "source_id": "cd" * 16 + ".3",
        "original_reward": 0.25,
        "source_step": 4,
        "source_task": {"idx": 3},
    }
    assert trace.keys().isdisjoint(("source_reward", "replay_task"))
    trace["rewards"] = {"mine": 0.125}
    found = read(orjson.dumps(line)).rollout
    assert found is not None
    record = value.decode(found.body).record
    assert {name: record[name] for name in said} == said
    assert slot_again(orjson.dumps(line)) == elsewhere(made.slot)
    row = table_row(standing_of(made))
    assert (row["source_reward"], row["source_step"], row["derivation"], row["depth"]) == (0.25, 4, "continue", 2)


@each_layout
def test_a_line_that_another_tool_laid_out_anew_is_the_same(write: Write) -> None:
    import json as python

    text = write(standing_of(sound("g", 1)))
    again = python.dumps(python.loads(text), sort_keys=True, indent=None, separators=(", ", ": ")).encode()
    one, two = read(text).rollout, read(again).rollout
    assert one is not None
    assert two is not None
    assert one.digest == two.digest


@each_layout
@pytest.mark.parametrize(
    "broken",
    [
        {"slot": {}},
        {"slot": {"group": "g"}},
        {"slot": 3},
        {"value": "?"},
        {"value": "AAAA"},
        {"more": 1},
        {"status": "x"},
    ],
    ids=str,
)
def test_a_stamp_that_cannot_be_read_rejects_its_line(write: Write, broken: dict[str, Any]) -> None:
    line = orjson.loads(write(standing_of(sound("g"))))
    holder = line if "rolloutlog" in line else line["info"]
    holder["rolloutlog"] |= broken
    assert normalise(Line(0, orjson.dumps(line)), SPAN).fault is not None


def test_agents_whose_turns_alternate_keep_their_own_trees() -> None:
    """Each trace's nodes name one another by their places in it, so that other tools can walk them."""
    made = sound("g").trajectory
    nodes = np.array([(-1, 3, 0, 0, 0), (-1, 0, 0, 0, 1), (0, 4, 4, 2, 0), (1, 0, 0, 0, 1), (2, 0, 0, 0, 0)], np.int32)
    record = {"agents": [{"name": "a"}, {"name": "b"}], "nodes": [{}, {}, {"sampled": True}, {}, {}]}
    own = Trajectory(
        record_text=orjson.dumps(record),
        token_ids=made.token_ids,
        logprobs=made.logprobs,
        mask=made.mask,
        segments=made.segments,
        nodes=nodes,
    )
    line = orjson.loads(LAYOUTS["episodes"](standing_of(replace(sound("g"), trajectory=own))))
    assert [[node.get("parent") for node in trace["nodes"]] for trace in line["traces"]] == [[None, 0, 1], [None, 0]]
    assert len({trace["id"] for trace in line["traces"]}) == 2
