"""Why a rollout isn't a source: the closed set of reasons, as rows keep them and people read them.

Guarantees: each reason has a sentence. Leaves out: what decides them (`rolloutlog.buffer.sources`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Skip(StrEnum):
    """Why a rollout isn't a source."""

    EVAL = "eval"
    UNFINISHED = "unfinished"
    EMPTY = "empty"
    ERRORED = "errored"
    UNSAMPLED = "unsampled"
    NO_MESSAGES = "no-messages"
    CONTAINER = "container"
    REPLAYED = "replayed"
    TOO_DEEP = "too-deep"
    FOREIGN = "foreign"
    NO_SEED = "no-seed"
    NO_SNAPSHOT = "no-snapshot"
    OVERLONG = "overlong"
    SOURCE_REWARD = "source-reward"
    REFUSED = "refused"
    NO_ENV = "no-env"
    REJECTED = "rejected"
    TOO_LARGE = "too-large"
    GONE = "gone"
    ONE_SIDED = "one-sided"


SKIPS: Mapping[Skip, str] = {
    Skip.EVAL: "an eval rollout; `select.eval` takes it",
    Skip.UNFINISHED: "it was aborted or failed",
    Skip.EMPTY: "it has no nodes",
    Skip.ERRORED: "it says that errors happened",
    Skip.UNSAMPLED: "no policy sampled any of it",
    Skip.NO_MESSAGES: "nodes without messages: nobody can render a prompt of them",
    Skip.CONTAINER: "its task ran in a container image, whose state is gone; `select.allow_container` takes it",
    Skip.REPLAYED: "itself derived, and `select.source_envs` doesn't name its derivation",
    Skip.TOO_DEEP: "a seed of it would have more derivations behind it than `select.max_depth`",
    Skip.FOREIGN: "`select.source_envs` doesn't name its environment",
    Skip.NO_SEED: "no place in it is such an anchor: a restart after a compaction, a tool's answer, and so on",
    Skip.NO_SNAPSHOT: "the state was kept at some of its nodes, and at none of these anchors",
    Skip.OVERLONG: "every anchor lies above `select.max_seed_tokens`",
    Skip.SOURCE_REWARD: "its reward lies outside of the band of `select`; a later one may lie in it",
    Skip.REFUSED: "the environment couldn't stand at its anchor; the candidate is drawn no more",
    Skip.NO_ENV: "it names no environment, so nobody could make what is derived from it (`import --env`)",
    Skip.REJECTED: "no seed can be made of it; a `derivation.rejected` on the dead letters says why",
    Skip.TOO_LARGE: "no topic takes the seed, and no store can hold it",
    Skip.GONE: "it isn't on the log any more",
    Skip.ONE_SIDED: "a balanced derivation waits for one on the other side, right or wrong; counted while it does",
}
"""What each means, for the reference and for whoever reads `rolloutlog status`."""
