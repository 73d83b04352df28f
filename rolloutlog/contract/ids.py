"""Identity: every id is a function of what it names, so a retry writes the same id (design/log#identity).

Guarantees: equal facts give equal ids, on every machine; a text boundary can't be shifted into another id, since
parts are length-prefixed. Leaves out: who decides that two facts are the same (the folds).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct

from rolloutlog.contract.partitions import partition_of

ID_BYTES = 16
_LENGTHS = Struct("<I").pack
_NUMBER = Struct(">Q8x").unpack


def digest_of(value: bytes | memoryview) -> str:
    """SHA-256 of a value, as hex: the `digest` header."""
    return hashlib.sha256(value).hexdigest()


def id_of(*parts: str | int | float) -> str:
    """A 32-digit id of an ordered list of facts."""
    return hashlib.blake2b(_bytes_of(parts), digest_size=ID_BYTES).hexdigest()


def _bytes_of(parts: Iterable[str | int | float]) -> bytes:
    texts = [str(part).encode() for part in parts]
    return b"".join([_LENGTHS(len(text)) + text for text in texts])


def ended_id(group: str) -> bytes:
    """What a shard keeps of a group that it has forgotten (design/buffer#ended)."""
    return hashlib.blake2b(group.encode(), digest_size=ID_BYTES).digest()


def rank_of(*parts: str | int) -> int:
    """A 64-bit number of an ordered list of facts, for draws: `rank_of(...) % n`."""
    return RankOf(*parts)()


class RankOf:
    """`rank_of` facts that begin alike: `RankOf(a)(b) == rank_of(a, b)`; what they begin with is hashed once."""

    __slots__ = ("_begun",)

    def __init__(self, *first: str | int) -> None:
        self._begun = hashlib.blake2b(_bytes_of(("rank", *first)), digest_size=ID_BYTES)

    def __call__(self, *rest: str | int) -> int:
        """The number of those facts and these behind them."""
        state = self._begun.copy()
        for part in rest:
            text = str(part).encode()
            state.update(_LENGTHS(len(text)) + text)
        return _NUMBER(state.digest())[0]


def rollout_id(group: str, member: int) -> str:
    """Id of a member's rollout, stable over attempts."""
    return f"{group}.{member}"


def attempt_id(group: str, member: int, attempt: int) -> str:
    """Event id of one attempt's record: `<rollout>.<attempt>`."""
    return f"{group}.{member}.{attempt}"


def fresh_seed_id(env: str, task_key: str, epoch: int, ordinal: int) -> str:
    """Id of a fresh seed: the same task in the same epoch is the same seed."""
    return id_of("fresh", env, task_key, epoch, ordinal)


def eval_seed_id(env: str, task_key: str, number: int) -> str:
    """Id of an eval seed: the same held-out task in the same round is the same seed."""
    return id_of("eval", env, task_key, number)


def derived_seed_id(kind: str, source: str, attempt: int, anchor: int | None, settings_digest: str, draw: int) -> str:
    """Id of a derived seed; `draw` is the number of earlier draws of that candidate."""
    return id_of("derived", kind, source, attempt, -1 if anchor is None else anchor, settings_digest, draw)


def member_seed_id(group: str, member: int, attempt: int) -> str:
    """Id of a resume or reroll seed, which asks for that attempt."""
    return id_of("member", group, member, attempt)


def taken_id(seed: str, worker: str, renewal: int) -> str:
    """Event id of a take, or of its renewal."""
    return id_of("taken", seed, worker, renewal)


def annotation_id(rollout: str, attempt: int, value: bytes) -> str:
    """Event id of an annotation: the same words about the same attempt are said once."""
    return id_of("annotated", rollout, attempt, digest_of(value))


def cancelled_id(group: str, members: Iterable[int], reason: str) -> str:
    """Event id of a cancellation of those members of a group."""
    return id_of("cancelled", group, ",".join(map(str, sorted(members))), reason)


def final_id(timeline: int, step: int, group: str, pass_number: int) -> str:
    """Event id of a group's final event in a pass."""
    return id_of("final", timeline, step, group, pass_number)


def imported_group_id(run: str, group: str) -> str:
    """Group id of recorded rollouts: the run's own group, made unique over runs."""
    return id_of("imported", run, group)


def derived_group_id(seed: str, partition: int, partitions: int) -> str:
    """Group id of a derived seed, with the smallest nonce that puts it on its source's partition
    (design/log#topics)."""
    nonce = 0
    while True:
        candidate = id_of("group", seed, nonce)
        if partition_of(candidate, partitions) == partition:
            return candidate
        nonce += 1
