"""A shard of the buffer: what it folds, emits and restores (design/buffer#fold)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.lineage import settings_id
from rolloutlog.buffer.shard.rendering import Void
from rolloutlog.buffer.sources.draws import drawn_rank
from rolloutlog.consumers.views.seed_view import seed_row
from rolloutlog.contract.events.event import cancelled_event
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.seeds import Seed, seed_cancelled_event
from rolloutlog.contract.ids import derived_seed_id, member_seed_id, rollout_id
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind, Status
from tests.buffer.events_by_hand import (
    annotated,
    cancelled,
    expired,
    final,
    forged,
    fresh,
    rollout,
    seed_id,
    taken,
    tool_turns,
)
from tests.buffer.partition_log import Owner, PartitionLog, group_id, restored, settings_of
from tests.buffer.recorded import say


def log_of(*records: Any, **changes: Any) -> PartitionLog:
    log = PartitionLog(settings_of(**changes))
    log.append(*records)
    return log


def whole(name: str, **facts: Any) -> list[Any]:
    """A group with all its members."""
    return [rollout(name, member, **facts) for member in range(2)]


AFTER_TOOLS = {"name": "continue", "derive": {"type": "continue", "anchor": "tool-call"}}
NO_DERIVING = {"buffer": {"ratio": 0.0}}


class TestDerivedSeeds:
    def test_a_whole_tool_turn_becomes_a_seed_of_a_new_group_on_the_same_partition(self) -> None:
        log = log_of(*whole("a"), buffer={"ratio": 1.0})
        Owner(log).settle()
        (seed,) = log.seeds
        assert (seed.kind, seed.derivation, seed.depth, seed.env) == (
            SeedKind.CONTINUE,
            "continue-tool-call",
            1,
            "sums",
        )
        assert seed.anchor
        assert seed.anchor.kind == AnchorKind.TOOL_CALL
        assert seed.messages
        assert [m["role"] for m in seed.messages][:2] == ["system", "user"]
        assert seed.messages[-1]["role"] == "tool"
        assert seed.task == {"prompt": "task"}
        assert seed.source
        assert seed.source.rollout in {rollout_id(group_id("a"), member) for member in range(2)}
        assert seed.source.reward == 1.0
        assert seed.group_size == 2, "as many members as the source's group"
        assert partition_of(seed.group, 1) == 0
        assert seed.draw
        assert (seed.draw.number, seed.draw.rollouts) == (0, 2)

    def test_a_seed_of_an_episode_names_the_trace_of_its_main_agent_and_where_that_begins(self) -> None:
        """The judge's trace stands first; `node` of a candidate's row indexes the solver's own trace
        (design/commands#facts)."""
        judge, solver = [say("system", "judge"), say("assistant", "right", 0)], tool_turns(1)
        for node in solver:
            node.agent, node.parent = 1, node.parent + len(judge) if node.parent >= 0 else node.parent
        agents = [
            {"name": "judge", "trainable": False, "reward": None, "root": 0, "trace": "t-judge"},
            {"name": "solver", "trainable": True, "reward": 1.0, "root": len(judge), "trace": "t-solver"},
        ]
        made = [
            rollout("a", member, nodes=judge + solver, record={"agents": agents}, origin_seed=None, trace="t-judge")
            for member in range(2)
        ]
        log = log_of(*made, buffer={"ratio": 1.0})
        Owner(log).settle()
        (seed,) = log.seeds
        assert seed.source
        assert seed.anchor
        assert (seed.source.trace, seed.source.base, seed.anchor.node) == ("t-solver", 2, 5)
        row = seed_row(seed)
        assert (row["source"], row["node"]) == ("t-solver", 3)

    def test_the_seed_id_names_kind_source_anchor_settings_and_earlier_draws(self) -> None:
        log = log_of(*whole("a"), buffer={"ratio": 1.0})
        Owner(log).settle()
        (seed,) = log.seeds
        assert seed.source

        assert seed.anchor
        settings = settings_id(log.settings.buffer.derivations[1])
        made = derived_seed_id(SeedKind.CONTINUE, seed.source.rollout, 1, seed.anchor.node, settings, 0)
        assert seed.id == made

    def test_ratio_bounds_derived_seeds_by_resolved_underived_groups(self) -> None:
        log = log_of(*whole("a"), *whole("b"), *whole("c"), buffer={"ratio": 0.5})
        Owner(log).settle()
        assert len(log.seeds) == 1, "floor(0.5 x 3)"
        log.append(*whole("d"))
        Owner(log).settle()
        assert len(log.seeds) == 2

    def test_imported_groups_count_and_open_ones_do_not(self) -> None:
        log = log_of(*whole("a", origin_seed=None), rollout("b"), buffer={"ratio": 1.0})
        Owner(log).settle()
        assert len(log.seeds) == 1

    def test_open_derived_groups_are_bounded_until_they_end(self) -> None:
        """max_open 9 and B 1: two may be derived (a quarter of what exceeds B)."""
        log = log_of(*whole("a"), *whole("b"), trainer={"max_open": 9})
        owner = Owner(log)
        owner.settle()
        assert len(log.seeds) == 2
        ended = log.seeds[0].group
        log.append(*[_ended(ended)])
        owner.settle()
        assert len(log.seeds) == 3

    def test_a_derived_group_is_never_of_one(self) -> None:
        """As many as the source's group; where that was alone, as many as the run says."""
        log = log_of(rollout("a", group_size=1), buffer={"ratio": 1.0, "group_size": 5})
        Owner(log).settle()
        assert [seed.group_size for seed in log.seeds] == [5]
        log = log_of(*whole("a"), buffer={"ratio": 1.0, "derivations": [{**AFTER_TOOLS, "group_size": 3}]})
        Owner(log).settle()
        assert [seed.group_size for seed in log.seeds] == [3]

    def test_a_seed_may_sample_what_its_prompt_leaves_of_a_sequence(self) -> None:
        """decisions/replay#19."""
        log = log_of(*whole("a"), buffer={"ratio": 1.0, "seq_len": 1000})
        Owner(log).settle()
        (seed,) = log.seeds
        assert seed.tokens
        assert seed.budget == 1000 - seed.tokens
        given = [{**AFTER_TOOLS, "budget": 7}]
        log = log_of(*whole("a"), buffer={"ratio": 1.0, "seq_len": 1000, "derivations": given})
        Owner(log).settle()
        assert [seed.budget for seed in log.seeds] == [7]

    def test_a_candidate_is_drawn_max_draws_times(self) -> None:
        log = log_of(*whole("a"), *whole("b"))
        Owner(log).settle()
        sources = [(seed.source and seed.source.rollout, seed.anchor and seed.anchor.node) for seed in log.seeds]
        assert len(sources) == len(set(sources)) == 4, "one anchor a source, each once"

    def test_every_draw_of_a_candidate_is_another_seed(self) -> None:
        log = log_of(*whole("a"), buffer={"ratio": 4.0, "derivations": [{**AFTER_TOOLS, "max_draws": 2}]})
        Owner(log).settle()
        assert len({seed.id for seed in log.seeds}) == 4

    def test_eval_rollouts_never_seed(self) -> None:
        log = log_of(*whole("a", kind="eval"), *whole("b", turns=0))
        Owner(log).settle()
        assert log.seeds == []

    def test_nothing_derived_is_a_source_unless_it_is_named(self) -> None:
        """Naming a derivation is the opt-in to chain (decisions/replay#7)."""
        chained = whole("a", derivation="continue", depth=1)
        log = log_of(*whole("b", turns=0), *chained)
        Owner(log).settle()
        assert log.seeds == []
        naming = [{**AFTER_TOOLS, "name": "again", "select": {"source_envs": ["sums/continue"]}}]
        log = log_of(*whole("b", turns=0), *chained, buffer={"ratio": 1.0, "derivations": naming})
        Owner(log).settle()
        assert [(seed.derivation, seed.depth) for seed in log.seeds] == [("again", 2)]

    def test_only_the_standing_attempt_of_a_member_is_a_source(self) -> None:
        """A run imported, one reward changed and imported again had both attempts as candidates
        (design/buffer#pool)."""
        log = log_of(*whole("a"), rollout("a", 1, attempt=2, reward=0.5))
        Owner(log).settle()
        assert sorted(seed.source.where.offset for seed in log.seeds if seed.source) == [0, 2]

    def test_a_bad_record_of_a_higher_attempt_leaves_no_source(self) -> None:
        log = log_of(*whole("a"), forged(rollout("a", 1, attempt=2)))
        Owner(log).settle()
        assert [seed.source.where.offset for seed in log.seeds if seed.source] == [0]

    @pytest.mark.parametrize("first", [Topic.ROLLOUTS, Topic.GROUP_EVENTS])
    def test_what_comes_after_the_end_of_its_group_is_no_source(self, first: Topic) -> None:
        """In whichever order the inputs are read: the two others trained, this one came too late."""
        log = log_of(*whole("a", group_size=3), rollout("a", 2, group_size=3), *whole("b", turns=0))
        log.append(final("a", as_of=2))
        owner = Owner(log)
        owner.read(first)
        owner.settle()
        assert sorted(seed.source.where.offset for seed in log.seeds if seed.source) == [0, 1]

    def test_a_dead_source_keeps_its_place(self) -> None:
        """So that which sources are here depends on `rollouts` alone, and not on finals."""
        log = log_of(*whole("a"), rollout("a", 1, attempt=2), buffer={"capacity": 2})
        owner = Owner(log)
        owner.settle()
        assert list(owner.shard.fold.pool.sources) == [1, 2]
        assert [seed.source.where.offset for seed in log.seeds if seed.source] == [2]

    def test_a_source_without_an_environment_is_skipped_and_counted(self) -> None:
        """Nobody could make what is derived from it; it ended the service (a header that can't be empty)."""
        log = log_of(*whole("a", env=None), *whole("b"), buffer={"ratio": 1.0})
        owner = Owner(log)
        owner.settle()
        assert len(log.seeds) == 2
        assert owner.shard.fold.census.skipped["continue-tool-call", Skip.NO_ENV] == 2
        assert log.reasons == []

    def test_a_late_reward_moves_a_source_into_the_band(self) -> None:
        """The newest annotation wins (decisions/replay#13)."""
        wrong = [{**AFTER_TOOLS, "select": {"max_source_reward": 0.5}}]
        log = log_of(*whole("a"), buffer={"ratio": 1.0, "derivations": wrong})
        owner = Owner(log)
        owner.settle()
        assert log.seeds == []
        log.append(annotated("a", 1, reward=0.25))
        owner.settle()
        (seed,) = log.seeds
        assert seed.source
        assert (seed.source.rollout, seed.source.reward) == (rollout_id(group_id("a"), 1), 0.25)

    def test_a_refused_anchor_is_drawn_no_more(self) -> None:
        log = log_of(*whole("a", turns=1), buffer={"ratio": 9.0, "derivations": [{**AFTER_TOOLS, "max_draws": 9}]})
        owner = Owner(log)
        owner.settle()
        refused = next(seed for seed in log.seeds if seed.source and seed.source.rollout.endswith(".0"))
        before = len(log.seeds)
        log.append(_refused(refused.group))
        for seed in log.seeds:
            log.append(_ended(seed.group))
        owner.settle()
        for name in "bcdefgh":
            log.append(*whole(name, turns=0))
        owner.settle()
        later = log.seeds[before:]
        assert later
        assert not any(seed.source and seed.source.rollout.endswith(".0") for seed in later)
        (derivation,) = owner.log.settings.buffer.derivations
        assert owner.shard.fold.numbers()[f"skipped {derivation.name}: refused"] == 1

    def test_the_newest_candidates_are_kept(self) -> None:
        """The capacity is the eviction (decisions/replay#35)."""
        log = log_of(*whole("a"), *whole("b"), buffer={"capacity": 2})
        owner = Owner(log)
        owner.settle()
        assert {source.row.group for source, _ in owner.shard.fold.pool} == {group_id("b")}

    def test_a_shard_without_a_share_derives_nothing(self) -> None:
        log = log_of(*whole("a"), trainer={"max_open": 1})
        Owner(log).settle()
        assert log.seeds == []


class TestMembersMadeAgain:
    def test_an_aborted_member_is_resumed_with_its_prefix_and_the_rest_of_the_budget(self) -> None:
        log = log_of(fresh("a"), rollout("a", 0), rollout("a", 1, status=Status.ABORTED), **NO_DERIVING)
        Owner(log).settle()
        resume = log.seeds[-1]
        assert (resume.kind, [ask.attempt for ask in resume.asks], resume.asks[0].member) == (SeedKind.RESUME, [2], 1)
        assert resume.id == member_seed_id(group_id("a"), 1, 2)
        assert resume.prefix
        assert resume.prefix.startswith("0/1/")
        assert resume.prefix_digest
        assert (resume.origin_seed, resume.origin_offset, resume.budget) == (seed_id("a"), 0, 100)

    def test_without_an_origin_seed_nobody_is_asked(self) -> None:
        log = log_of(rollout("a", 0), rollout("a", 1, status=Status.ABORTED), **NO_DERIVING)
        Owner(log).settle()
        assert log.seeds == []

    def test_an_expired_member_is_made_again_from_its_start(self) -> None:
        log = log_of(fresh("a"), *whole("a"), expired("a", 1), **NO_DERIVING)
        Owner(log).settle()
        again = log.seeds[-1]
        assert (again.kind, again.asks[0].member, again.asks[0].attempt, again.prefix) == (SeedKind.REROLL, 1, 2, None)

    def test_a_lost_lease_asks_for_the_open_members_only(self) -> None:
        log = log_of(fresh("a"), taken("a"), rollout("a", 0), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        owner.clock = 59.9
        owner.settle()
        assert len(log.seeds) == 1
        owner.clock = 60.0
        owner.settle()
        assert [(seed.kind, seed.asks[0].member, seed.asks[0].attempt) for seed in log.seeds[1:]] == [("reroll", 1, 2)]

    def test_a_renewal_keeps_the_lease_and_has_no_row(self) -> None:
        log = log_of(fresh("a"), taken("a"), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        rows = len(log.rows)
        owner.clock = 50.0
        log.append(taken("a", renewal=1))
        owner.settle()
        assert len(log.rows) == rows + 1, "the shard row alone"
        owner.clock = 109.0
        owner.settle()
        assert len(log.seeds) == 1
        owner.clock = 110.0
        owner.settle()
        assert len(log.seeds) == 3

    def test_a_new_owner_starts_every_lease_afresh(self) -> None:
        log = log_of(fresh("a"), taken("a"), **NO_DERIVING)
        Owner(log).settle()
        heir = Owner(log, clock=1000.0)
        heir.settle()
        assert len(log.seeds) == 1
        heir.clock = 1060.0
        heir.settle()
        assert len(log.seeds) == 3

    def test_a_completed_member_whose_reward_is_pending_holds_no_lease(self) -> None:
        log = log_of(fresh("a"), taken("a"), rollout("a", 0, reward=None), rollout("a", 1), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        owner.clock = 61.0
        owner.settle()
        assert len(log.seeds) == 1

    def test_a_lost_resume_is_resumed_from_the_same_prefix(self) -> None:
        log = log_of(fresh("a"), rollout("a", 0), rollout("a", 1, status=Status.ABORTED), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        log.append(taken("a", seed=log.seeds[-1].id))
        owner.settle()
        owner.clock = 61.0
        owner.settle()
        assert [(seed.kind, seed.asks[0].attempt, seed.prefix) for seed in log.seeds[1:]] == [
            ("resume", 2, log.seeds[1].prefix),
            ("resume", 3, log.seeds[1].prefix),
        ]

    def test_a_slow_worker_that_completes_n_while_n_plus_1_runs_ends_the_matter(self) -> None:
        log = log_of(fresh("a"), taken("a"), rollout("a", 0), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        owner.clock = 61.0
        owner.settle()
        log.append(rollout("a", 1, attempt=1), taken("a", seed=log.seeds[-1].id))
        owner.settle()
        owner.clock = 200.0
        owner.settle()
        assert len(log.seeds) == 2
        assert owner.shard.fold.groups.opened[group_id("a")].group.resolved

    def test_out_of_attempts_the_open_members_and_their_seeds_are_cancelled(self) -> None:
        log = log_of(fresh("a"), rollout("a", 0), **NO_DERIVING)
        owner = Owner(log)
        for attempt in (1, 2, 3):
            log.append(rollout("a", 1, attempt=attempt, status=Status.ABORTED))
            owner.settle()
        types = [event.headers.type for event in log.topics[Topic.SEEDS]]
        assert types == ["seed.emitted"] * 3 + ["seed.cancelled"] * 3
        assert log.topics[Topic.ROLLOUTS][-1].headers.type == "group.cancelled"
        assert owner.shard.fold.groups.opened[group_id("a")].group.status(1) == "cancelled"
        assert owner.shard.fold.groups.opened[group_id("a")].group.resolved

    def test_once_enough_members_are_complete_only_expired_ones_are_made_again(self) -> None:
        """Over-provision: `group_train` of `group_size` (design/trainer#stragglers)."""
        facts: dict[str, Any] = {"group_size": 3, "group_train": 2}
        members = [rollout("a", member, **facts) for member in range(2)]
        aborted = rollout("a", 2, status=Status.ABORTED, **facts)
        log = log_of(fresh("a", **facts), taken("a"), *members, aborted, **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        owner.clock = 61.0
        owner.settle()
        assert len(log.seeds) == 1
        log.append(expired("a", 0))
        owner.settle()
        assert [seed.asks[0].member for seed in log.seeds[1:]] == [0, 2], "too few are left, so the aborted one as well"

    @pytest.mark.parametrize("ended", [final("a"), cancelled("a", [0, 1])], ids=["final", "cancelled"])
    def test_a_group_that_ended_holds_no_lease(self, ended: Any) -> None:
        log = log_of(fresh("a"), taken("a"), ended, taken("a", "w2"), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        owner.clock = 61.0
        owner.settle()
        assert len(log.seeds) == 1

    def test_a_cancelled_seed_is_not_waited_for(self) -> None:
        gone = seed_cancelled_event(
            seed=seed_id("a"), group=group_id("a"), group_size=2, reason="no longer", source="/tests", now=1
        )
        log = log_of(fresh("a"), taken("a"), gone, **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        owner.clock = 61.0
        owner.settle()
        assert len(log.seeds) == 1


class TestRowsAndRestore:
    def test_every_event_that_was_taken_has_one_row_and_the_shard_row_is_last(self) -> None:
        log = log_of(fresh("a"), taken("a"), *whole("a"), annotated("a", reward=0.5), expired("a", 1), final("a"))
        Owner(log).settle()
        kinds = [str(event.headers.type) for event in log.topics[Topic.ROLLOUT_INDEX]]
        assert sorted(kind for kind in kinds if kind.endswith(".indexed")) == sorted(
            [
                "seed.indexed",
                "take.indexed",
                "rollout.indexed",
                "rollout.indexed",
                "annotation.indexed",
                "expiry.indexed",
                "final.indexed",
                *["seed.indexed"] * (len(log.seeds) - 1),
            ]
        )
        assert kinds[-1] == "shard.state"

    def test_duplicates_without_places_have_no_row_and_bad_records_a_dead_letter(self) -> None:
        good, other = (rollout("a", reward=reward, status=Status.FAILED) for reward in (1.0, 0.0))
        log = log_of(good, good, other, **NO_DERIVING)
        Owner(log).settle()
        assert [event.headers.type for event in log.topics[Topic.ROLLOUT_INDEX]] == ["rollout.indexed", "shard.state"]
        assert log.reasons == ["conflict"]

    def test_duplicates_and_conflicts_take_their_places_as_dead_ones(self) -> None:
        """Once their group is forgotten nobody could tell them from others (design/buffer#pool)."""
        log = log_of(*(rollout("a", reward=reward) for reward in (1.0, 1.0, 0.0)), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        assert [(row.offset, row.dead) for row in log.rows if isinstance(row, RolloutRow)] == [
            (0, False),
            (1, True),
            (2, True),
        ]
        assert [source.dead for source in owner.shard.fold.pool.sources.values()] == [False, True, True]
        assert log.reasons == ["conflict"]

    def test_a_record_of_an_ended_group_is_late_whatever_it_says(self) -> None:
        log = log_of(*whole("a"), final("a", as_of=2), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        log.append(rollout("a"), rollout("a", reward=0.0), rollout("a", 1, attempt=2))
        owner.settle()
        assert log.reasons == []
        assert [row.dead for row in log.rows if isinstance(row, RolloutRow)] == [False, False, True, True, True]

    def test_the_shard_row_says_how_far_and_what_is_still_needed(self) -> None:
        log = log_of(*whole("a", turns=0), *whole("b", turns=0), final("a", as_of=4), fresh("a"), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        log.append(annotated("b", reward=0.5))
        owner.settle()
        state = log.rows[-1]
        assert isinstance(state, StateRow)
        assert (state.rollouts, state.group_events, state.settings) == (5, 1, log.settings.digest)
        assert state.needed == 2, "group b; a has ended, and neither has a candidate"

    def test_a_candidate_needs_the_rows_of_its_group_too(self) -> None:
        """A reward that was told before the record; when the group has ended, nothing else holds it."""
        log = log_of(annotated("a", reward=0.5), rollout("a"), final("a"), **NO_DERIVING)
        owner = Owner(log)
        owner.settle()
        log.append(rollout("b", turns=0))
        owner.settle()
        state = log.rows[-1]
        assert isinstance(state, StateRow)
        assert state.needed == 0

    def test_an_empty_partition_says_nothing(self) -> None:
        log = log_of()
        Owner(log).settle()
        assert log.rows == []

    def test_a_restored_shard_equals_the_live_one_and_emits_nothing_twice(self) -> None:
        log = log_of(fresh("a"), taken("a"), *whole("a"), *whole("b"), rollout("c", reward=None))
        owner = Owner(log)
        owner.settle()
        assert restored(log) == owner.shard.fold
        seeds = len(log.seeds)
        Owner(log).settle()
        assert len(log.seeds) == seeds

    def test_nothing_is_emitted_before_the_inputs_are_read_to_their_end(self) -> None:
        """Seeds that the last owner emitted may lie unread; emitting first would say them twice."""
        log = log_of(*whole("a"), buffer={"ratio": 1.0})
        last = Owner(log)
        last.read(Topic.ROLLOUTS)
        last.flush()
        assert len(log.seeds) == 1
        heir = Owner(log)
        heir.flush()
        heir.settle()
        assert len(log.seeds) == 1


def _ended(group: str) -> Any:
    return final_event(GroupFinal(group=group, group_size=2, timeline=0, step=1, as_of=9), source="/tests", now=1)


def _refused(group: str) -> Any:
    return cancelled_event(group=group, group_size=2, members=[0, 1], reason="refused", source="/tests", now=1)


class TestPayloads:
    def test_a_draw_whose_payload_is_not_cached_is_rendered_when_it_comes_and_keeps_its_offsets(self) -> None:
        """It keeps the `o` of its draw (design/buffer#rendering)."""
        log = log_of(*whole("a"), buffer={"ratio": 1.0, "cache_bytes": 0})
        owner = Owner(log)
        owner.read(Topic.ROLLOUTS)
        owner.shard.draw(clock=0.0, caught_up=True)
        (handle,) = owner.shard.missing()
        assert not any(record.topic is Topic.SEEDS for record in owner.shard.flush(now=1, clock=0.0))
        log.append(*whole("b"))
        owner.read(Topic.ROLLOUTS)
        owner.shard.supply(handle, log.trajectory(handle))
        (made,) = [record for record in owner.shard.flush(now=1, clock=0.0) if record.topic is Topic.SEEDS]
        draw = Seed.decode(made.value).draw
        assert draw
        assert (draw.number, draw.rollouts) == (0, 2)

    def test_a_source_that_is_gone_is_counted_and_the_next_is_drawn_at_once(self) -> None:
        """Past retention each draw of it voided the queue and paused for a lease, for ever."""
        log = log_of(*whole("a"), *whole("b"), buffer={"ratio": 2.0, "cache_bytes": 0})
        owner = Owner(log)
        log.gone = {0, 3}
        owner.settle()
        assert {seed.source and seed.source.where.offset for seed in log.seeds} == {1, 2}
        assert owner.shard.fold.census.skipped["continue-tool-call", Skip.GONE] == 2
        numbers = [seed.draw.number for seed in log.seeds if seed.draw]
        assert numbers == sorted(set(numbers)), "numbers of void draws aren't used again"
        assert log.reasons == [], "what is gone has no record to blame"

    def test_whoever_draws_again_needs_to_know_nothing_of_void_draws(self) -> None:
        """Draw `k` is a function of the fold, the settings and `k`; the discarded stay in the ranks
        (design/buffer#draws)."""
        log = log_of(*whole("a"), *whole("b"), *whole("c"), buffer={"ratio": 1.0, "cache_bytes": 0})
        log.gone = {0, 1, 4}
        Owner(log).settle()
        offsets = list(range(6))
        for seed in log.seeds:
            assert seed.draw
            assert seed.source
            drawn = offsets[drawn_rank(len(offsets), log.settings.buffer.salt, 0, seed.draw.number)]
            assert drawn == seed.source.where.offset
            offsets.remove(drawn)

    def test_a_source_that_can_not_be_read_any_more_is_told_and_the_next_is_drawn(self) -> None:
        log = log_of(*whole("a"), buffer={"ratio": 1.0, "cache_bytes": 0})
        owner = Owner(log)
        owner.read(Topic.ROLLOUTS)
        owner.shard.draw(clock=0.0, caught_up=True)
        (handle,) = owner.shard.missing()
        owner.shard.supply(handle, Void(Skip.REJECTED, "claim-missing: no body"))
        owner.settle()
        assert len(log.seeds) == 1
        assert log.reasons == ["derivation"]

    def test_a_seed_that_no_topic_takes_is_not_emitted_but_told(self) -> None:
        long = [say("system", "s"), say("user", "x" * 70_000, 0), say("assistant", "", 1, calls="a")]
        nodes = [*long, say("tool", "found", 2, answers="a"), say("assistant", "done", 3)]
        log = log_of(*whole("a", nodes=nodes), *whole("b"), topics={"max_message_bytes": 65536})
        owner = Owner(log)
        owner.settle()
        assert {seed.source and seed.source.where.offset for seed in log.seeds} == {2, 3}
        assert log.reasons == ["derivation"] * 2
        assert owner.shard.fold.census.skipped["continue-tool-call", Skip.TOO_LARGE] == 2
