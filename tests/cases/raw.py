"""Records as they lie on the log, sound or not, for tests that write or fold what no producer of ours would write.

Guarantees: `Raw.of` is exactly what a sound producer writes; `but` and `holding` change one thing and nothing else.
Leaves out: Kafka; a test that writes a `Raw` sends its key, headers and value to `partition(P)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.value import SAFETENSORS
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import FIELDS, Headers

NOW = 1_790_000_000_000
SOURCE = "/tests/worker"

DERIVED = (
    "stop_condition", "oldest_policy", "newest_policy", "grain", "reward", "tokens", "turns", "branches", "digest",
)  # fmt: skip
"""Headers that follow from the value: whoever forges a value would have to forge them as well."""


@dataclass(frozen=True, slots=True)
class Raw:
    """One record on `topic`; `misplaced` puts it on another partition than its key's."""

    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes | None
    topic: Topic = Topic.ROLLOUTS
    misplaced: bool = False

    @classmethod
    def of(cls, made: Outgoing | Rollout) -> Raw:
        """What a sound producer writes."""
        if isinstance(made, Rollout):
            made = rollout_event(made, source=SOURCE, now=NOW)
        return cls(made.key, tuple(made.headers), made.value, made.topic)

    def but(self, headers: Mapping[str, bytes | None]) -> Raw:
        """The same with other headers by attribute name or full name; None takes one away."""
        changed = {FIELDS[name].name if name in FIELDS else name: text for name, text in headers.items()}
        names = dict(self.headers) | changed
        return replace(self, headers=tuple((name, text) for name, text in names.items() if text is not None))

    def holding(self, value: bytes | None, content_type: str = SAFETENSORS) -> Raw:
        """The same slot with another value, whose digest is right; the derived headers are left out."""
        gone: dict[str, bytes | None] = dict.fromkeys(DERIVED)
        digest = None if value is None else digest_of(value).encode()
        known = self.but(gone | {"content_type": content_type.encode(), "digest": digest})
        return replace(known, value=value)

    def partition(self, partitions: int) -> int:
        """Where it is written among `partitions`."""
        right = partition_of(self.key or b"", partitions)
        return (right + 1) % partitions if self.misplaced else right

    def event(self, partitions: int = 6, offset: int = 0) -> Event:
        """The record as it is read from the log."""
        return Event(self.topic, self.partition(partitions), offset, NOW, self.key, Headers(self.headers), self.value)
