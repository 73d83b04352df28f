"""A member's slot: which attempt of which member of which group a rollout is, and where the group comes from.

Guarantees: everything here comes from headers or goes to them; nothing is read from the value. Leaves out: what was
sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rolloutlog.contract.handles import Handle
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import attempt_id, rollout_id
from rolloutlog.contract.vocabulary import RunKind, SeedKind


@dataclass(slots=True, frozen=True, kw_only=True)
class Slot:
    """Group, member and attempt of a rollout, with the lineage of its group."""

    group: str
    group_size: int
    member: int
    attempt: int = 1
    group_train: int | None = None
    kind: RunKind = RunKind.TRAIN
    run: str | None = None
    env: str | None = None
    derivation: str | None = None
    origin_seed: str | None = None
    origin_offset: int | None = None
    seed_kind: SeedKind | None = None
    source_id: str | None = None
    source_handle: Handle | None = None
    depth: int | None = None
    dispatch_step: int | None = None
    filtered: bool | None = None

    @property
    def needed(self) -> int:
        """Members needed to train the group: `group_train`, or all of them."""
        return self.group_size if self.group_train is None else self.group_train

    @property
    def rollout(self) -> str:
        """Rollout id."""
        return rollout_id(self.group, self.member)

    @property
    def event_id(self) -> str:
        """Event id of this attempt's record."""
        return attempt_id(self.group, self.member, self.attempt)

    def retry(self, attempt: int) -> Slot:
        """The same slot at another attempt."""
        return replace(self, attempt=attempt)

    @classmethod
    def of(cls, headers: Headers) -> Slot:
        """Read a slot from headers; raises HeaderError."""
        return cls(
            group=headers.require(Headers.group),
            group_size=headers.require(Headers.group_size),
            member=headers.require(Headers.member),
            attempt=1 if headers.attempt is None else headers.attempt,
            group_train=headers.group_train,
            kind=headers.kind or RunKind.TRAIN,
            run=headers.run,
            env=headers.env,
            derivation=headers.derivation,
            origin_seed=headers.origin_seed,
            origin_offset=headers.origin_offset,
            seed_kind=headers.seed_kind,
            source_id=headers.source_id,
            source_handle=headers.source_handle,
            depth=headers.depth,
            dispatch_step=headers.dispatch_step,
            filtered=headers.filtered,
        )
