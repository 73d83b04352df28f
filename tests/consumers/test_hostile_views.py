"""Whatever the JSON inside a record says, views print it and exports write the others (design/buffer#hostile-json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rolloutlog.buffer.shard.rendering import Void, rendered
from rolloutlog.cli.screen.output import json_text, print_indented
from rolloutlog.cli.screen.shallow import CUT
from rolloutlog.cli.seeds import print_seeds
from rolloutlog.consumers.exporting.layouts import LAYOUTS
from rolloutlog.consumers.views.event_view import event_json
from rolloutlog.consumers.views.seed_view import NOT_DRAWN, seed_row
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import HOSTILE, Rejected
from rolloutlog.formats.writers.standing import StandingRollout
from rolloutlog.trainer.staleness.agents import agents_of
from tests.buffer.events_by_hand import fresh, rollout
from tests.buffer.partition_log import Owner
from tests.buffer.test_hostile_json import log_of
from tests.cases.hostile import hostile, json_values, text_of, told
from tests.cases.raw import Raw

DEEP = told("a", 0, {("task",): "$deep:1000"})


@given(hostile)
@example(DEEP)
def test_show_and_tail_print_whatever_a_record_says(raw: Raw) -> None:
    shown = event_json(raw.event(1))
    assert json.loads(json_text(shown))["topic"] == Topic.ROLLOUTS
    print_indented(shown["value"])


def test_what_is_nested_too_deep_is_cut_and_says_so() -> None:
    assert CUT in json_text(event_json(DEEP.event(1)))


@given(st.lists(hostile, max_size=3))
def test_candidates_are_rows_whatever_their_siblings_say(raws: list[Raw]) -> None:
    log = log_of(*raws)
    log.append(rollout("good", 0, turns=1))
    owner = Owner(log)
    for topic in log.topics:
        if topic in owner.positions:
            owner.read(topic)
    rows = []
    pool = owner.shard.fold.pool
    for candidate in pool.live:
        source = pool.sources[candidate.offset]
        seed = rendered(source.facts, candidate, log.trajectory(source.row.handle(0)), NOT_DRAWN, log.settings, 0)
        assert not isinstance(seed, Void), "what is indexed as a candidate can be rendered"
        rows.append(seed_row(seed))
        assert json.loads(json_text(rows[-1]))["kind"] == "continue"
    assert rows
    print_seeds(rows)


@given(json_values, json_values, json_values)
def test_seeds_of_others_are_rows_whatever_they_say(content: object, role: object, policy: object) -> None:
    made = fresh("a")
    body = json.loads(made.value) | {"messages": [{"role": role, "content": content}]}
    body["source"] = {"rollout": "r", "attempt": 1, "handle": "0/0/0", "oldest_policy": str(policy)[:99]}
    try:
        seed = Seed.decode(text_of(body))
    except ValueError:
        return  # a dead letter
    row = seed_row(seed)
    assert json.loads(json_text(row))["kind"] == seed.kind
    print_seeds([row])


@pytest.mark.parametrize("layout", LAYOUTS)
@given(st.lists(hostile, min_size=1, max_size=3))
def test_an_export_is_whole_without_what_its_layout_can_not_hold(
    layout: str, tmp_path_factory: pytest.TempPathFactory, raws: list[Raw]
) -> None:
    """What can't be written leaves nothing behind, so the others and the index's spans are right."""
    if layout == "parquet":
        pytest.importorskip("pyarrow")
    root = tmp_path_factory.mktemp("out")
    files = LAYOUTS[layout](root)
    written = 0
    for raw in (*raws, Raw.of(rollout("good", 0))):
        try:
            files.add(StandingRollout(event := raw.event(1), read_rollout(event), {"trained": True, "step": 1}))
        except Rejected:
            continue
        except HOSTILE:
            continue
        written += 1
    files.close()
    assert written >= 1
    if layout != "parquet":
        check_lines(root, layout, written)


def check_lines(root: Path, layout: str, written: int) -> None:
    """Every line is JSON, as many as were written; every span of an index is a line's."""
    lines = [line for path in root.rglob("*.jsonl") for line in path.read_bytes().splitlines()]
    assert all(json.loads(line) for line in lines)
    assert len(lines) == 2 * written, "the copy of what was trained, or the row of the index"
    for index in root.rglob("index_*.jsonl"):
        (body,) = index.parent.glob("train_*.jsonl")
        rows = [json.loads(line) for line in index.read_bytes().splitlines()]
        assert [json.loads(body.read_bytes()[row["offset"] :][: row["len"]]) is not None for row in rows]


@given(hostile)
def test_the_table_of_agents_is_read_whatever_it_says(raw: Raw) -> None:
    try:
        trajectory = read_rollout(raw.event(1)).trajectory
    except Rejected:
        return
    assert all(isinstance(agent.name, str) for agent in agents_of(trajectory))
