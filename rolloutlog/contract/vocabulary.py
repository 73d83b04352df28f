"""The closed sets of words that events, headers, metrics and docs share (design/README#words).

Guarantees: a word on the log is one of these, spelled once. Leaves out: what each word makes a service do, which the
rooms that own the behaviour say.
"""

from __future__ import annotations

from enum import StrEnum


class EventType(StrEnum):
    """`ce_type` of every event, named after what happened."""

    SEED_TAKEN = "seed.taken"
    ROLLOUT_COMPLETED = "rollout.completed"
    ROLLOUT_ABORTED = "rollout.aborted"
    ROLLOUT_FAILED = "rollout.failed"
    ROLLOUT_ANNOTATED = "rollout.annotated"
    GROUP_CANCELLED = "group.cancelled"
    TIMELINE_STARTED = "timeline.started"
    POLICY_IMPORTED = "policy.imported"
    POLICY_PUBLISHED = "policy.published"
    CHECKPOINT_SAVED = "checkpoint.saved"
    ROLLOUT_INDEXED = "rollout.indexed"
    ANNOTATION_INDEXED = "annotation.indexed"
    TAKE_INDEXED = "take.indexed"
    CANCEL_INDEXED = "cancel.indexed"
    SEED_INDEXED = "seed.indexed"
    EXPIRY_INDEXED = "expiry.indexed"
    FINAL_INDEXED = "final.indexed"
    ENDED_INDEXED = "ended.indexed"
    GROUP_CARRIED = "group.carried"
    SOURCES_CARRIED = "sources.carried"
    SEEDS_WANTED = "seeds.wanted"
    SHARD_STATE = "shard.state"
    SEED_EMITTED = "seed.emitted"
    SEED_CANCELLED = "seed.cancelled"
    RUN_DECLARED = "run.declared"
    SETTINGS_RECORDED = "settings.recorded"
    SOURCE_DECLARED = "source.declared"
    CURSOR_MOVED = "cursor.moved"
    STEP_CLOSED = "step.closed"
    AUDIT_SEALED = "audit.sealed"
    MANIFEST_PINNED = "manifest.pinned"
    MEMBER_EXPIRED = "member.expired"
    GROUP_TRAINED = "group.trained"
    GROUP_DROPPED = "group.dropped"
    GROUPS_ENDED = "groups.ended"
    RECORD_REJECTED = "record.rejected"
    DERIVATION_REJECTED = "derivation.rejected"


class Status(StrEnum):
    """How one attempt of a rollout ended."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"


class RunKind(StrEnum):
    """Train rollouts may seed and train; eval rollouts do neither."""

    TRAIN = "train"
    EVAL = "eval"


WORD = r"^[a-z0-9][a-z0-9-]{0,63}$"
"""How a kind is spelled that anybody may add: the type of a derivation, and what it calls its anchors."""


class SeedKind(StrEnum):
    """What a seed asks workers for; a seed of a derivation that isn't ours has its type for a kind."""

    FRESH = "fresh"
    CONTINUE = "continue"
    RECHECK = "recheck"
    JUDGE = "judge"
    RESUME = "resume"
    REROLL = "reroll"


class AnchorKind(StrEnum):
    """Where in its source a *continue* seed resumes."""

    COMPACTION = "compaction"
    TOOL_CALL = "tool-call"


class Grain(StrEnum):
    """How finely a source knew which policy sampled which token."""

    TOKEN = "token"
    EPISODE = "episode"
    NONE = "none"


class Verdict(StrEnum):
    """What the staleness rule says of a member at a train step."""

    FRESH = "fresh"
    PARTLY = "partly"
    EXPIRED = "expired"
    EXEMPT = "exempt"
    UNKNOWN = "unknown"
    BASELINE = "baseline"
    SURPLUS = "surplus"


class DropReason(StrEnum):
    """Why a whole group was dropped instead of trained."""

    EXPIRED = "expired"
    NO_SEED = "no-seed"
    NO_TOKEN = "no-token"
    SINGLE = "single"
    SURVIVORS = "survivors"
    ZERO_VARIANCE = "zero-variance"
    UNKNOWN_POLICY = "unknown-policy"
    ENVIRONMENT = "environment"
    FILTERED = "filtered"
    SKIPPED = "skipped"
    UNUSABLE = "unusable"


class RejectReason(StrEnum):
    """Why a record went to the dead letters."""

    HEADER_MISSING = "header-missing"
    HEADER_UNKNOWN = "header-unknown"
    HEADER_MALFORMED = "header-malformed"
    SCHEMA_NEWER = "schema-newer"
    TYPE_UNKNOWN = "type-unknown"
    CONTENT_TYPE = "content-type"
    KEY = "key"
    PARTITION = "partition"
    MEMBER_RANGE = "member-range"
    ORIGIN = "origin"
    GROUP_SIZE = "group-size"
    VALUE_NULL = "value-null"
    NOT_JSON = "not-json"
    TRUNCATED = "truncated"
    SHAPE = "shape"
    DIGEST = "digest"
    LENGTHS = "lengths"
    TOKEN_IDS = "token-ids"
    LOGPROBS = "logprobs"
    SEGMENTS = "segments"
    PARENT = "parent"
    INCONSISTENT = "inconsistent"
    CONFLICT = "conflict"
    CLAIM_MISSING = "claim-missing"
    CLAIM_CHANGED = "claim-changed"
    POLICY_UNKNOWN = "policy-unknown"
    ERA_UNKNOWN = "era-unknown"
    INDEX_SPAN = "index-span"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too-large"


RESOLVES_SLOT = frozenset(
    {
        RejectReason.VALUE_NULL,
        RejectReason.NOT_JSON,
        RejectReason.TRUNCATED,
        RejectReason.SHAPE,
        RejectReason.DIGEST,
        RejectReason.LENGTHS,
        RejectReason.TOKEN_IDS,
        RejectReason.LOGPROBS,
        RejectReason.SEGMENTS,
        RejectReason.PARENT,
        RejectReason.INCONSISTENT,
        RejectReason.CLAIM_MISSING,
        RejectReason.CLAIM_CHANGED,
        RejectReason.POLICY_UNKNOWN,
    }
)
"""Reasons found in the value: the slot ends as failed(rejected). Reasons found in headers say nothing sure about a
slot, and a CONFLICT leaves the first record of that attempt standing, so neither resolves one
(design/groups#resolution)."""
