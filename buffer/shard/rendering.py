"""From a draw to the seed that is emitted, or to why there is none.

Guarantees: total: a draw whose seed can't be made, or that no reader or topic would take, is void with a reason, never
an exception; what is made is sound to whoever reads it. Leaves out: choosing (`candidate_sampler`), and reading
payloads.
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.lineage import derived_seed
from rolloutlog.buffer.sources.candidates import Candidate, SourceFacts
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.rollouts import check_seed
from rolloutlog.contract.events.seeds import Draw, Seed, seed_event
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.wire.claims import CLAIM_ROOM
from rolloutlog.contract.wire.rejection import HOSTILE, fault_of


@dataclass(slots=True, frozen=True)
class Void:
    """No seed: the candidate is passed over as `skip`, and `detail` says why."""

    skip: Skip
    detail: str


def rendered(
    source: SourceFacts, candidate: Candidate, trajectory: Trajectory, draw: Draw, settings: Settings, partition: int
) -> Seed | Void:
    """The seed of a candidate; `candidate.draws` counts the draws before this one."""
    own = next(each for each in settings.buffer.derivations if each.name == candidate.derivation)
    try:
        seed = derived_seed(
            source,
            candidate,
            trajectory,
            draw,
            settings=own,
            buffer=settings.buffer,
            partition=partition,
            partitions=settings.topics.partitions,
        )
        check_seed(seed)
    except MemoryError:
        raise  # of this process, not of the record
    except Exception as error:  # noqa: BLE001 - a hook may be anybody's, and raise what it likes
        return Void(Skip.REJECTED, fault_of(error))
    return seed


def emitted(seed: Seed, settings: Settings, *, partition: int, source: str, now: int) -> Outgoing | Void:
    """The event of a rendered seed."""
    try:
        made = seed_event(seed, source=source, now=now, partition=partition)
    except HOSTILE as error:
        return Void(Skip.REJECTED, fault_of(error))
    limit = settings.topics.max_record_bytes
    left = made.size if settings.blobs is None else made.size - len(made.value) + CLAIM_ROOM
    if left > limit:
        return Void(Skip.TOO_LARGE, f"its seed takes {made.size} bytes; a topic of this run takes {limit}")
    return made
