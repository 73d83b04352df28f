"""What must hold for everything that a live loop left on the log, whatever happened on the way
(design/groups#accounting).

Guarantees: reads the topics by the contract alone, not by the folds that it checks. Leaves out: `rolloutlog audit`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, read_group_event
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, SeedKind, Status, Verdict
from rolloutlog.contract.wire.headers import Headers
from tests.producers.log import everything

STATUSES = {f"rollout.{status}" for status in Status}


@dataclass
class Account:
    """One reading of all topics; dicts keep the order of the log within a partition."""

    settings: Settings
    seeds: dict[str, tuple[Event, Seed]]
    cancelled_seeds: set[str]
    rollouts: list[tuple[Event, Rollout]]
    cancelled: list[tuple[Event, tuple[int, ...], str]]
    finals: list[tuple[Event, GroupFinal]]
    expired: list[tuple[Event, MemberExpired]]
    published: list[Policy]
    dead: list[Event]

    @classmethod
    async def read(cls, settings: Settings) -> Account:
        rollouts = await everything(settings)
        seeds = await everything(settings, Topic.SEEDS)
        emitted = [event for event in seeds if event.headers.type == EventType.SEED_EMITTED]
        assert len({event.headers.id for event in emitted}) == len(emitted), "a seed id twice"
        known = [(event, read_group_event(event)) for event in await everything(settings, Topic.GROUP_EVENTS)]
        cancels = [event for event in rollouts if event.headers.type == EventType.GROUP_CANCELLED]
        policies = await everything(settings, Topic.POLICY_VERSIONS, EventType.POLICY_PUBLISHED)
        return cls(
            settings=settings,
            seeds={event.headers.id or "": (event, Seed.of(event)) for event in emitted},
            cancelled_seeds={
                event.headers.seed or "" for event in seeds if event.headers.type == EventType.SEED_CANCELLED
            },
            rollouts=[(event, read_rollout(event)) for event in rollouts if event.headers.type in STATUSES],
            cancelled=[(event, (notice := read_cancelled(event)).members, notice.reason) for event in cancels],
            finals=[(event, one) for event, one in known if isinstance(one, GroupFinal)],
            expired=[(event, one) for event, one in known if isinstance(one, MemberExpired)],
            published=[event.headers.require(Headers.policy) for event in policies],
            dead=await everything(settings, Topic.DEAD_LETTERS),
        )

    @property
    def origins(self) -> dict[str, Seed]:
        """The seed that each group comes from."""
        return {seed.group: seed for _, seed in self.seeds.values() if not seed.asks}

    @property
    def open_groups(self) -> set[str]:
        """Groups that were asked for and haven't ended."""
        return self.origins.keys() - {final.group for _, final in self.finals}

    def of(self, group: str, member: int) -> list[Rollout]:
        """The records of a member."""
        return [one for _, one in self.rollouts if (one.slot.group, one.slot.member) == (group, member)]

    def asked(self, group: str) -> dict[int, list[Seed]]:
        """The member seeds of a group, by member, in the order of the log."""
        found: dict[int, list[Seed]] = defaultdict(list)
        for _, seed in self.seeds.values():
            for ask in seed.asks if seed.group == group else ():
                found[ask.member].append(seed)
        return found

    def check(self) -> None:
        """Everything but the audit."""
        self.check_ends()
        self.check_origins()
        self.check_attempts()
        self.check_lineage()
        self.check_refusals()
        self.check_staleness()

    def check_ends(self) -> None:
        """Every group ends once, and no record is trained twice."""
        assert not self.open_groups, "groups without an end"
        ended = Counter(final.group for _, final in self.finals)
        assert set(ended.values()) == {1}, f"groups that ended twice: {ended.most_common(3)}"
        assert ended.keys() == self.origins.keys(), "ends of groups that nobody asked for"
        trained = Counter(
            member.handle for _, final in self.finals if final.reason is None for member in final.members
            if member.verdict in (Verdict.FRESH, Verdict.PARTLY)
        )  # fmt: skip
        assert not trained or set(trained.values()) == {1}
        steps = [final.step for _, final in self.finals if final.reason is None]
        assert {Policy(0, step) for step in steps} <= set(self.published)
        assert len(set(self.published)) == len(self.published), "a policy twice"

    def check_origins(self) -> None:
        """All members of a group descend from its one origin seed, and say where it lies."""
        origins, places = self.origins, {seed.group: event for event, seed in self.seeds.values() if not seed.asks}
        assert len(origins) == sum(not seed.asks for _, seed in self.seeds.values()), "two origin seeds in a group"
        for event, rollout in self.rollouts:
            slot, origin = rollout.slot, origins[rollout.slot.group]
            assert (slot.origin_seed, slot.origin_offset) == (origin.id, places[slot.group].offset)
            assert event.partition == places[slot.group].partition
            assert (slot.derivation, slot.depth or 0, slot.env) == (origin.derivation, origin.depth, origin.env)
            assert rollout.trajectory.record.get("task", origin.task) == origin.task
        for _, seed in self.seeds.values():
            if seed.asks:
                assert (seed.origin_seed, seed.origin_offset) == (origins[seed.group].id, places[seed.group].offset)

    def check_attempts(self) -> None:
        """Each member seed asks for one above the highest attempt before it; records only of what was asked for."""
        most = self.settings.buffer.max_attempts
        for group in self.origins:
            for member, seeds in self.asked(group).items():
                attempts = [ask.attempt for seed in seeds for ask in seed.asks]
                assert attempts == list(range(2, len(attempts) + 2)), f"{group}.{member}: {attempts}"
                assert attempts[-1] <= most
        for _, rollout in self.rollouts:
            asked = self.asked(rollout.slot.group).get(rollout.slot.member, [])
            assert rollout.slot.attempt <= len(asked) + 1

    def check_lineage(self) -> None:
        """A derived group resumes at its source's own anchor, under its task, one deeper, on its partition."""
        at = {(event.partition, event.offset): rollout for event, rollout in self.rollouts}
        drawn: Counter[tuple[int, int]] = Counter()
        for event, seed in self.seeds.values():
            if seed.kind is not SeedKind.CONTINUE:
                continue
            assert seed.source is not None
            assert seed.anchor is not None
            assert seed.draw is not None
            where = seed.source.where
            source = at[where.partition, where.offset]
            assert where.partition == event.partition
            assert seed.source.rollout == source.slot.rollout
            assert seed.depth == (source.slot.depth or 0) + 1
            assert seed.task == source.trajectory.record["task"]
            assert source.status is Status.COMPLETED
            expected = source.trajectory.messages[: seed.anchor.node + 1]
            assert seed.messages == [{k: v for k, v in (m or {}).items() if v is not None} for m in expected]
            drawn[event.partition, seed.draw.number] += 1
        assert not drawn or set(drawn.values()) == {1}, "a draw number twice"

    def check_refusals(self) -> None:
        """A candidate that was refused isn't drawn from a fold that knows it."""
        refused = {
            (event.partition, seed.source.handle, seed.anchor.node): event.offset
            for event, _, reason in self.cancelled
            if reason == "refused" and (seed := self.origins[event.headers.group or ""]).source and seed.anchor
        }
        for event, seed in self.seeds.values():
            if seed.source and seed.anchor and seed.draw:
                known = refused.get((event.partition, seed.source.handle, seed.anchor.node))
                assert known is None or seed.draw.rollouts <= known, f"{seed.id} drew a refused candidate"

    def check_staleness(self) -> None:
        """No token older than the bound is trained (design/staleness#masks)."""
        at = {(event.partition, event.offset): rollout for event, rollout in self.rollouts}
        bound = self.settings.trainer.staleness.max_staleness
        assert bound is not None
        for event, final in self.finals:
            for member in final.members if final.reason is None else ():
                if member.verdict is not Verdict.SURPLUS and member.handle and member.status == "completed":
                    rollout = at[event.partition, int(member.handle.split("/")[1])]
                    oldest, _ = rollout.trajectory.policy_span or (Policy(0, 0), None)
                    assert final.step - oldest.version - 1 <= bound
