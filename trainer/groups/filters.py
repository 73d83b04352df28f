"""Filters: small predicates that say why a group isn't worth a place in a batch (design/trainer#filters).

    class Solved:
        name = "solved"

        def reason(self, group: GroupFacts) -> str | None:
            return "every member solved it" if min(group.rewards) == 1 else None

    async with GroupStream(settings, filters=[Solved()]) as stream: ...

Guarantees: asked about groups that would be trained, with the members that would be kept; what one says stands in the
drop's final event beside its name. Leaves out: payloads, which aren't read for a group that may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

from rolloutlog.contract.errors import FilterFailed, SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.contract.wire.refusal import text_of
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import GroupVerdict

DETAIL = 1000
"""Letters of what is said at most: a whole rollout in it would be no reason."""
GROUP = "rolloutlog.group_filters"
"""Entry points by which a package offers filters: a class without arguments, by the filter's name."""


@dataclass(slots=True, frozen=True)
class MemberFacts:
    """One kept member; `notes` are its annotations, newest per key."""

    member: int
    attempt: int
    reward: float
    verdict: Verdict
    response_tokens: int
    trainable_tokens: int
    notes: Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class GroupFacts:
    """A group that would be trained at `step`, with the members that would be kept, by offset."""

    group: str
    size: int
    env: str | None
    step: int
    members: tuple[MemberFacts, ...]

    @property
    def rewards(self) -> list[float]:
        """Rewards of the kept members."""
        return [member.reward for member in self.members]


class GroupFilter(Protocol):
    """A filter: its name, and why a group is dropped (None: it isn't). Pure: the same group gets the same answer."""

    @property
    def name(self) -> str:
        """Name, as settings and final events say it."""
        ...

    def reason(self, group: GroupFacts) -> str | None:
        """Why the group isn't trained, in a few words; None: nothing is against it."""
        ...


def facts_of(pending: PendingGroup, verdict: GroupVerdict) -> GroupFacts:
    """What a filter is told."""
    members: list[MemberFacts] = []
    for judged in verdict.members:
        member = pending.group.members[judged.member]
        members.append(
            MemberFacts(
                member=judged.member,
                attempt=judged.attempt,
                reward=member.reward or 0.0,
                verdict=judged.verdict,
                response_tokens=judged.response_tokens,
                trainable_tokens=judged.trainable_tokens,
                notes=member.facts,
            )
        )
    return GroupFacts(pending.id, pending.group.size, pending.env, verdict.step, tuple(members))


def objection(filters: Iterable[GroupFilter], facts: GroupFacts) -> str | None:
    """What the first filter that drops the group says: its name, and why. Raises FilterFailed."""
    for each in filters:
        try:
            said = each.reason(facts)
        except Exception as error:
            raise FilterFailed(f"filter {each.name} failed on group {facts.group}: {error!r}") from error
        if said is not None:
            return text_of(f"{each.name}: {said}")[:DETAIL]
    return None


def with_filters(settings: Settings, filters: Sequence[GroupFilter]) -> Settings:
    """The settings with the names of the filters that are asked, as they are recorded. Raises SettingsError where two
    have one name."""
    names = [each.name for each in filters]
    if len(set(names)) < len(names):
        raise SettingsError(f"two filters have one name: {', '.join(names)}")
    return settings.model_copy(update={"trainer": settings.trainer.model_copy(update={"filters": names})})


def installed_filters(names: Sequence[str]) -> tuple[GroupFilter, ...]:
    """The filters that settings name. Raises SettingsError where one isn't installed."""
    offered = entry_points(group=GROUP)
    if missing := [name for name in names if name not in offered.names]:
        there = ", ".join(sorted(offered.names)) or "none"
        raise SettingsError(f"trainer.filters: {', '.join(missing)} isn't installed; there are {there}")
    return tuple(offered[name].load()() for name in names)
