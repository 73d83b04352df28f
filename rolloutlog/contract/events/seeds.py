"""Seeds: events that ask workers for one new group, or for members of one (design/groups#seeds).

Guarantees: a seed names its origin, lineage and draw, so that it can be drawn again from the log and compared; its
texts and numbers are such that whatever is said of it later (its cancellation, a member again) can be written. Leaves
out: choosing and rendering (`rolloutlog.buffer`), and leases.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.contract.events.event import Event, Outgoing, outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.numbers import COUNTED, LIMIT, Counted
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import WORD, EventType, RunKind
from rolloutlog.contract.wire.headers import MAX_TEXT
from rolloutlog.contract.wire.json_text import parse, write
from rolloutlog.contract.wire.rejection import problem_of

CANCELLED = ".cancelled"
"""End of the event id of a seed's cancellation."""
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
"""What is repeated in a header of every record that is made from a seed."""
Word = Annotated[str, Field(pattern=WORD)]
"""A kind: of seeds, one of `SeedKind` or the type of another derivation; of anchors, what the derivation calls it."""
SeedId = Annotated[str, Field(min_length=1, max_length=MAX_TEXT - len(CANCELLED))]
Count = Annotated[int, Field(ge=0, lt=LIMIT)]
LAST_DRAW = COUNTED
"""Draws have lower numbers: whoever is told one can count on."""


class _Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Anchor(_Fact):
    """The node of the source rollout at which a seed resumes."""

    kind: Word
    node: Count


class Source(_Fact):
    """The immediate source of a derived seed.

    `trace` is its id in its own run, where imported; `base` the node of the record at which that trace begins, in an
    episode of several.
    """

    rollout: Text
    attempt: Count
    handle: str
    digest: str | None = None
    reward: float | None = None
    step: Count | None = None
    trace: str | None = None
    base: Count = 0
    oldest_policy: str | None = None

    @property
    def where(self) -> Handle:
        """Where the source lies."""
        return Handle.parse(self.handle)


class Draw(_Fact):
    """Draw `number` of a partition, a function of the fold at the three input offsets and the settings
    (design/buffer#draws)."""

    number: Counted
    rollouts: Count
    seeds: Count
    group_events: Count
    settings: str


class Fresh(_Fact):
    """Where a fresh seed's task stands in its data set: its key, the epoch, and how often it was asked before in it."""

    key: Text
    epoch: Count = 0
    ordinal: Count = 0


class Ask(_Fact):
    """One member asked for, and the attempt it will be."""

    member: Count
    attempt: int = Field(ge=1, lt=COUNTED)


class Seed(_Fact):
    """One seed. `asks` lists members for resume and reroll; others ask for all of `group_size` at attempt 1.

    `messages` is the rendered prompt, system message included; `prefix` the handle of an aborted rollout to go on with,
    and `prefix_digest` the digest of its value. `snapshot` names the environment's state at the anchor. `budget` bounds
    new tokens; `tokens` counts the seeded context.
    """

    id: SeedId
    kind: Word
    group: Text
    group_size: int = Field(ge=1, lt=LIMIT)
    group_train: int | None = Field(default=None, ge=1, lt=LIMIT)
    run_kind: RunKind = RunKind.TRAIN
    env: Text
    derivation: Text | None = None
    task: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None
    source: Source | None = None
    anchor: Anchor | None = None
    depth: Count = 0
    tokens: Count | None = None
    budget: Count | None = None
    draw: Draw | None = None
    fresh: Fresh | None = None
    asks: list[Ask] = Field(default_factory=list[Ask])
    prefix: str | None = None
    prefix_digest: str | None = None
    origin_seed: SeedId | None = None
    origin_offset: Count | None = None
    dispatch_step: Count | None = None
    snapshot: Any = None

    @property
    def origin(self) -> str:
        """The origin seed: named by resume and reroll, itself for every other kind."""
        return self.origin_seed or self.id

    @property
    def wanted(self) -> list[Ask]:
        """Members to make."""
        return self.asks or [Ask(member=member, attempt=1) for member in range(self.group_size)]

    def slot(self, ask: Ask, offset: int, *, run: str | None = None) -> Slot:
        """The slot that a worker fills for `ask`; `offset` is this seed's own, on its partition of seeds."""
        return Slot(
            group=self.group,
            group_size=self.group_size,
            member=ask.member,
            attempt=ask.attempt,
            group_train=self.group_train,
            kind=self.run_kind,
            run=run,
            env=self.env,
            derivation=self.derivation,
            origin_seed=self.origin,
            origin_offset=offset if self.origin_offset is None else self.origin_offset,
            seed_kind=self.kind,
            depth=self.depth,
            dispatch_step=self.dispatch_step,
            source_id=self.source and self.source.rollout,
            source_handle=self.source and self.source.where,
        )

    def encode(self) -> bytes:
        """The event's value, the same bytes for the same seed. Raises Rejected for a number that JSON can't say."""
        return write(self.model_dump(exclude_none=True), orjson.OPT_SORT_KEYS)

    @classmethod
    def decode(cls, value: bytes) -> Seed:
        """Read an event's value; raises ValueError, Rejected among them."""
        try:
            return cls.model_validate(parse(value))
        except ValidationError as error:
            raise ValueError(f"not a seed: {problem_of(error)}") from error

    @classmethod
    def of(cls, event: Event) -> Seed:
        """Read a `seed.emitted` event; raises ValueError."""
        if event.value is None:
            raise ValueError("the value is null")
        return cls.decode(event.value)


def seed_event(seed: Seed, *, source: str, now: int, partition: int | None = None) -> Outgoing:
    """`seed.emitted`."""
    body = seed.encode()
    known = {
        "group": seed.group,
        "group_size": seed.group_size,
        "group_train": seed.group_train,
        "env": seed.env,
        "derivation": seed.derivation,
        "kind": seed.run_kind,
        "seed_kind": seed.kind,
        "origin_seed": seed.origin,
        "origin_offset": seed.origin_offset,
        "depth": seed.depth,
        "digest": digest_of(body),
        "seed": seed.id,
        "source_id": seed.source and seed.source.rollout,
        "source_handle": seed.source and seed.source.where,
    }
    return outgoing(
        EventType.SEED_EMITTED,
        Topic.SEEDS,
        key=seed.group,
        event_id=seed.id,
        source=source,
        value=body,
        now=now,
        subject=seed.id,
        partition=partition,
        headers=known,
    )


def seed_cancelled_event(*, seed: str, group: str, group_size: int, reason: str, source: str, now: int) -> Outgoing:
    """`seed.cancelled`: workers drop the seed and what they run for it."""
    body = orjson.dumps({"seed": seed, "reason": reason})
    return outgoing(
        EventType.SEED_CANCELLED,
        Topic.SEEDS,
        key=group,
        event_id=f"{seed}{CANCELLED}",
        source=source,
        value=body,
        now=now,
        subject=seed,
        headers={"group": group, "group_size": group_size, "seed": seed, "reason": reason, "digest": digest_of(body)},
    )
