"""The topics of a run: key, partitions, clean-up, who writes and who reads (design/log#topics).

Guarantees: one table, from which topics are created, checked, documented and given ACLs. Leaves out: creating them
(`rolloutlog.kafka.client.admin`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rolloutlog.contract.roles import Role
from rolloutlog.contract.vocabulary import EventType as T

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
RECORD_MARGIN = 4 * 1024
"""A record's headers, key and framing must fit below the topic's limit; the client refuses above limit - margin,
before a sequence number is taken (design/exactly-once#sends)."""
MAX_GROUP = 4096
"""Members of a group at most: folds look at all of a group that changed, so one header must not say a million."""

KEEP_FOR_EVER = -1


class Topic(StrEnum):
    """Bare topic names; on the cluster each is `<namespace>.<topic>`."""

    ROLLOUTS = "rollouts"
    SEEDS = "seeds"
    GROUP_EVENTS = "group-events"
    ROLLOUT_INDEX = "rollout-index"
    POLICY_VERSIONS = "policy-versions"
    RUN = "run"
    DEAD_LETTERS = "dead-letters"


AGING = (Topic.ROLLOUTS, Topic.ROLLOUT_INDEX)
"""What retention and deletion are of: the large payloads, and the index that points at them (design/log#retention)."""
COLLECTED = (Topic.ROLLOUTS, Topic.SEEDS, Topic.ROLLOUT_INDEX)
"""What `gc` deletes from, once nobody needs it (design/log#seals)."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One row of the table; `partitions` None means the run's P."""

    topic: Topic
    key: str
    partitions: int | None
    cleanup: str
    written_by: tuple[Role, ...]
    read_by: tuple[Role, ...]
    meaning: str
    types: tuple[T, ...]
    timestamps: str = "CreateTime"
    """Whose clock dates the records: the producer's, or with LogAppendTime the broker's."""

    @property
    def ages(self) -> bool:
        """Whether `topics.retention_ms` holds here. Elsewhere nothing is ever deleted: without its final event a group
        would be trained again, without its policy a token would have no age."""
        return self.topic in AGING

    @property
    def fixed(self) -> dict[str, str]:
        """Topic-level settings on the broker that are the same in every run, so `topics create` mends them."""
        settings = {
            "cleanup.policy": self.cleanup,
            "compression.type": "producer",
            "message.timestamp.type": self.timestamps,
            "retention.bytes": str(KEEP_FOR_EVER),
        }
        if not self.ages:
            settings |= {"retention.ms": str(KEEP_FOR_EVER)}
        if "compact" in self.cleanup:
            settings |= {"min.cleanable.dirty.ratio": "0.5", "delete.retention.ms": "86400000"}
        return settings

    def chosen(self, max_message_bytes: int, retention_ms: int | None) -> dict[str, str]:
        """Those that are a setting of the run; a retention of None isn't known."""
        settings = {"max.message.bytes": str(max_message_bytes)}
        if self.ages and retention_ms is not None:
            settings |= {"retention.ms": str(retention_ms)}
        return settings

    def configs(self, max_message_bytes: int = MAX_MESSAGE_BYTES, retention_ms: int = KEEP_FOR_EVER) -> dict[str, str]:
        """All of them."""
        return self.fixed | self.chosen(max_message_bytes, retention_ms)


TOPICS: dict[Topic, TopicSpec] = {
    spec.topic: spec
    for spec in (
        TopicSpec(
            topic=Topic.ROLLOUTS,
            key="group id",
            partitions=None,
            cleanup="delete",
            written_by=(Role.PRODUCERS, Role.WORKERS, Role.IMPORTERS, Role.BUFFER, Role.RETRY),
            read_by=(
                Role.WORKERS,
                Role.IMPORTERS,
                Role.BUFFER,
                Role.TRAINER,
                Role.REPLAY,
                Role.AUDIT,
                Role.GC,
                Role.RETRY,
                Role.PEOPLE,
            ),
            meaning="every attempt of every rollout, takes, annotations and cancellations",
            types=(
                T.SEED_TAKEN,
                T.ROLLOUT_COMPLETED,
                T.ROLLOUT_ABORTED,
                T.ROLLOUT_FAILED,
                T.ROLLOUT_ANNOTATED,
                T.GROUP_CANCELLED,
            ),
            timestamps="LogAppendTime",
        ),
        TopicSpec(
            topic=Topic.SEEDS,
            key="group id",
            partitions=None,
            cleanup="delete",
            written_by=(Role.BUFFER, Role.FEEDERS),
            read_by=(
                Role.WORKERS,
                Role.BUFFER,
                Role.FEEDERS,
                Role.TRAINER,
                Role.REPLAY,
                Role.AUDIT,
                Role.GC,
                Role.PEOPLE,
            ),
            meaning="the one queue of work for rollout workers",
            types=(T.SEED_EMITTED, T.SEED_CANCELLED),
        ),
        TopicSpec(
            topic=Topic.GROUP_EVENTS,
            key="group id",
            partitions=None,
            cleanup="delete",
            written_by=(Role.TRAINER,),
            read_by=(
                Role.BUFFER,
                Role.FEEDERS,
                Role.TRAINER,
                Role.REPLAY,
                Role.AUDIT,
                Role.GC,
                Role.RETRY,
                Role.PEOPLE,
            ),
            meaning="expired members, and what finally became of each group",
            types=(T.MEMBER_EXPIRED, T.GROUP_TRAINED, T.GROUP_DROPPED, T.GROUPS_ENDED),
        ),
        TopicSpec(
            topic=Topic.ROLLOUT_INDEX,
            key="kind and event id",
            partitions=None,
            cleanup="compact,delete",
            written_by=(Role.BUFFER,),
            read_by=(Role.WORKERS, Role.BUFFER, Role.REPLAY, Role.AUDIT, Role.GC, Role.PEOPLE),
            meaning="one small row per event that a shard took or emitted; the shard's changelog",
            types=(
                T.ROLLOUT_INDEXED,
                T.ANNOTATION_INDEXED,
                T.TAKE_INDEXED,
                T.CANCEL_INDEXED,
                T.SEED_INDEXED,
                T.EXPIRY_INDEXED,
                T.FINAL_INDEXED,
                T.ENDED_INDEXED,
                T.GROUP_CARRIED,
                T.SOURCES_CARRIED,
                T.SEEDS_WANTED,
                T.SHARD_STATE,
            ),
        ),
        TopicSpec(
            topic=Topic.POLICY_VERSIONS,
            key="run id",
            partitions=1,
            cleanup="delete",
            written_by=(Role.TRAINER, Role.PUBLISHERS, Role.IMPORTERS),
            read_by=(
                Role.WORKERS,
                Role.IMPORTERS,
                Role.FEEDERS,
                Role.TRAINER,
                Role.PUBLISHERS,
                Role.REPLAY,
                Role.AUDIT,
                Role.GC,
                Role.RETRY,
                Role.PEOPLE,
            ),
            meaning="timelines, policies and checkpoints, in order",
            types=(T.TIMELINE_STARTED, T.POLICY_IMPORTED, T.POLICY_PUBLISHED, T.CHECKPOINT_SAVED),
        ),
        TopicSpec(
            topic=Topic.RUN,
            key="name of the fact",
            partitions=1,
            cleanup="compact",
            written_by=(Role.OPERATOR, Role.IMPORTERS, Role.FEEDERS, Role.TRAINER, Role.REPLAY, Role.GC),
            read_by=tuple(Role),
            meaning=(
                "what the run is: P, its settings and source under their digests, cursors, where steps are done, what "
                "the audit has sealed, and which manifests hold records"
            ),
            types=(
                T.RUN_DECLARED,
                T.SETTINGS_RECORDED,
                T.CURSOR_MOVED,
                T.STEP_CLOSED,
                T.SOURCE_DECLARED,
                T.AUDIT_SEALED,
                T.MANIFEST_PINNED,
            ),
        ),
        TopicSpec(
            topic=Topic.DEAD_LETTERS,
            key="key of the bad record",
            partitions=1,
            cleanup="delete",
            written_by=(Role.IMPORTERS, Role.BUFFER, Role.TRAINER),
            read_by=(Role.IMPORTERS, Role.BUFFER, Role.TRAINER, Role.AUDIT, Role.GC, Role.RETRY, Role.PEOPLE),
            meaning=(
                "what was rejected, a record or what would be derived from it: reason, handle and digest, not the value"
            ),
            types=(T.RECORD_REJECTED, T.DERIVATION_REJECTED),
        ),
    )
}

INPUT_TOPICS = (Topic.ROLLOUTS, Topic.SEEDS, Topic.GROUP_EVENTS)
"""What the buffer service reads: the same partition number of each belongs to one owner (design/exactly-once#loop)."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names on the cluster: topics, groups and transactional ids share the namespace prefix, so prefixed ACLs fit."""

    namespace: str

    def topic(self, topic: Topic) -> str:
        """Full name of a topic."""
        return f"{self.namespace}.{topic}"

    def bare(self, name: str) -> Topic:
        """The topic behind a full name; raises ValueError."""
        return _bare(self.namespace, name)

    def group(self, role: str) -> str:
        """Consumer group of a role, such as `buffer` or `workers`."""
        return f"{self.namespace}.{role}"

    def transactional_id(self, *parts: str | int) -> str:
        """Transactional id, such as `<ns>.buffer.3` or `<ns>.trainer`."""
        return ".".join([self.namespace, *map(str, parts)])


@lru_cache(1024)
def _bare(namespace: str, name: str) -> Topic:
    """Asked once per record that is read, so remembered."""
    if not name.startswith(f"{namespace}."):
        raise ValueError(f"{name} isn't a topic of namespace {namespace}")
    return Topic(name.removeprefix(f"{namespace}."))
