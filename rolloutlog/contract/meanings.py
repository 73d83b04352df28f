"""What the words on the log mean, in one line each, for the reference and for whoever reads a dead letter.

Guarantees: every event type, reason, verdict and kind of seed has a meaning (a test holds it). Leaves out: behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping

from rolloutlog.contract.vocabulary import DropReason, EventType, RejectReason, SeedKind, Verdict

EVENTS: Mapping[EventType, str] = {
    EventType.SEED_TAKEN: "a worker holds a seed for the length of a lease; again for each renewal",
    EventType.ROLLOUT_COMPLETED: "an attempt ended as it should; its reward may still be pending",
    EventType.ROLLOUT_ABORTED: "an attempt was interrupted; its member stays open and may be gone on with",
    EventType.ROLLOUT_FAILED: "an attempt failed; its member is resolved without a reward",
    EventType.ROLLOUT_ANNOTATED: "late facts about an attempt, such as its reward; newest wins per key",
    EventType.GROUP_CANCELLED: "those members of a group will get no record",
    EventType.TIMELINE_STARTED: "one life of a trainer begins: its parent and the step that it goes on from",
    EventType.POLICY_IMPORTED: "a policy that an importer found in a recorded run; never current",
    EventType.POLICY_PUBLISHED: "weights went out to workers",
    EventType.CHECKPOINT_SAVED: "a checkpoint of a step: where it lies, and from where on a resume reads the topics",
    EventType.ROLLOUT_INDEXED: "row of a rollout of any status, taken or rejected",
    EventType.ANNOTATION_INDEXED: "row of an annotation",
    EventType.TAKE_INDEXED: "row of a take or its renewal",
    EventType.CANCEL_INDEXED: "row of a cancellation, of members or of a seed",
    EventType.SEED_INDEXED: "row of a seed",
    EventType.EXPIRY_INDEXED: "row of an expired member",
    EventType.FINAL_INDEXED: "row of a group's final event",
    EventType.ENDED_INDEXED: "a group that ended and is forgotten, or a chunk of their ids",
    EventType.GROUP_CARRIED: "an old group that still counts, told again, so that no restore needs its rows",
    EventType.SOURCES_CARRIED: "sources of the buffer in bulk, so that a restore needn't read them row by row",
    EventType.SEEDS_WANTED: "seeds that nobody has taken, where a worker group without offsets starts",
    EventType.SHARD_STATE: "the last record of a shard's transaction: next offset of each input, settings digest",
    EventType.SEED_EMITTED: "workers are asked for one new group, or for members of one",
    EventType.SEED_CANCELLED: "workers drop that seed",
    EventType.RUN_DECLARED: "what can't change while the run lives: P, batch size, settings digest",
    EventType.SETTINGS_RECORDED: "the text of the settings that must agree, under their digest",
    EventType.SOURCE_DECLARED: "the ended namespace whose rollouts the run draws on too",
    EventType.CURSOR_MOVED: "how far an importer is",
    EventType.STEP_CLOSED: "a train step is done: from where on a start reads the topics",
    EventType.AUDIT_SEALED: "the counts of a partition's records up to an offset, below which they may be deleted",
    EventType.MANIFEST_PINNED: "a frozen buffer, and the records that it still reads",
    EventType.MEMBER_EXPIRED: "a member is too old for its step and is asked for again; not final",
    EventType.GROUP_TRAINED: "final: a group was trained, with the handles and verdicts of its members",
    EventType.GROUP_DROPPED: "final: a group was dropped, and why",
    EventType.GROUPS_ENDED: "2,048 groups that ended, by 16 bytes each, and where those before them lie",
    EventType.RECORD_REJECTED: "a record or a line of a file breaks the contract: reason and place",
    EventType.DERIVATION_REJECTED: "no seed can be made of a sound rollout, which stays and may be trained: why",
}

REJECTED: Mapping[RejectReason, str] = {
    RejectReason.HEADER_MISSING: "a required header isn't there",
    RejectReason.HEADER_UNKNOWN: "a `ce_` header isn't in the table of headers",
    RejectReason.HEADER_MALFORMED: "a header isn't UTF-8, isn't of its kind, or is an id of another record",
    RejectReason.SCHEMA_NEWER: "the schema version is newer than this reader knows",
    RejectReason.TYPE_UNKNOWN: "the type isn't one that this topic carries",
    RejectReason.CONTENT_TYPE: "the value is of a type that nobody reads",
    RejectReason.KEY: "the key isn't the group",
    RejectReason.PARTITION: "the record isn't on the partition of its key (murmur2)",
    RejectReason.MEMBER_RANGE: "the member lies outside its group",
    RejectReason.ORIGIN: "the member descends from another origin seed than its group",
    RejectReason.GROUP_SIZE: "the group has another size, or needs more members than it has",
    RejectReason.VALUE_NULL: "the value is null",
    RejectReason.NOT_JSON: "the value, or the record inside, isn't JSON",
    RejectReason.TRUNCATED: "the value isn't a whole safetensors buffer",
    RejectReason.SHAPE: "a column or a fact isn't of its type or shape, or holds a number that can't be kept",
    RejectReason.DIGEST: "the digest in the headers isn't the value's",
    RejectReason.LENGTHS: "token ids, mask, log-probs or node counts disagree",
    RejectReason.TOKEN_IDS: "a token id is below 0",
    RejectReason.LOGPROBS: "a log-prob isn't a finite number, or lies above 0 by more than rounding (0.001)",
    RejectReason.SEGMENTS: "the segments don't tile the sampled tokens of a node",
    RejectReason.PARENT: "a node's parent points forward, to itself or out of range",
    RejectReason.INCONSISTENT: "a header says something else than the value",
    RejectReason.CONFLICT: "the same attempt is there already with another value; the first stands",
    RejectReason.CLAIM_MISSING: "the claimed body isn't in the blob store",
    RejectReason.CLAIM_CHANGED: "the claimed body isn't the one that was claimed",
    RejectReason.POLICY_UNKNOWN: "a token claims a policy that was never published (said by the trainer alone)",
    RejectReason.ERA_UNKNOWN: "a line of a file is of no format that the importer knows",
    RejectReason.INDEX_SPAN: "the byte-span index of a recorded run disagrees with its file",
    RejectReason.UNREADABLE: "a line of a file can't be read at all",
    RejectReason.TOO_LARGE: "what a line of a file says is above the topic's limit, and no blob store is configured",
}

DROPPED: Mapping[DropReason, str] = {
    DropReason.EXPIRED: "members were too old, and weren't made again",
    DropReason.NO_SEED: "a member would have to be made again, but the group has no origin seed",
    DropReason.NO_TOKEN: "no trainable token is left in the group",
    DropReason.UNUSABLE: "a sample of it can't be trained: too long, outside the vocabulary, without a temperature",
    DropReason.SINGLE: "one member alone has no baseline",
    DropReason.SURVIVORS: "fewer members with a reward are left than `min_survivors`",
    DropReason.ZERO_VARIANCE: "all rewards are equal, so that no advantage is left",
    DropReason.UNKNOWN_POLICY: "tokens of an unknown policy aren't trained live",
    DropReason.ENVIRONMENT: "its environment has no part in a batch",
    DropReason.FILTERED: "a filter found that it isn't worth a place; the event says which, and why",
    DropReason.SKIPPED: "it was open when a trainer was started at the end of the log",
}

VERDICTS: Mapping[Verdict, str] = {
    Verdict.FRESH: "every sampled token may be trained",
    Verdict.PARTLY: "some tokens are too old and are masked",
    Verdict.EXPIRED: "too old, or nothing trainable is left",
    Verdict.EXEMPT: "no policy is known, and staleness isn't asked of it",
    Verdict.UNKNOWN: "no policy is known, or it shares no history with the current one",
    Verdict.BASELINE: "not trained; its reward counts in the baseline",
    Verdict.SURPLUS: "more members completed than the group needs",
}

SEEDS: Mapping[SeedKind, str] = {
    SeedKind.FRESH: "a task from a data set",
    SeedKind.CONTINUE: "go on from a compaction or a tool result of a rollout",
    SeedKind.RECHECK: "the finished conversation, and one turn that asks to check the work",
    SeedKind.JUDGE: "a transcript, and the question whether it was right",
    SeedKind.RESUME: "go on with an aborted attempt, from its tokens",
    SeedKind.REROLL: "make members again that expired or were lost",
}
