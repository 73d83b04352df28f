"""E1 and E1b: a line is a bare trace; the replay branches stamped it with `info.prime_rl` (reference 1.4).

Guarantees: without a stamp nothing is known of group, policy or environment but what the file's name says. Leaves out:
the index files beside them (`spans`).
"""

from __future__ import annotations

from rolloutlog.contract.vocabulary import Grain, RunKind
from rolloutlog.producers.importing.era import Era
from rolloutlog.producers.importing.foreign import Json, part
from rolloutlog.producers.importing.graph import Graph
from rolloutlog.producers.importing.recorded import Identity, Origin, Recorded, Span
from rolloutlog.producers.importing.trace import reward_of, say_sampling, status_of, take_lineage


def identify(line: Json, origin: Origin) -> Identity:
    """Which trace a line is. Raises KeyError, TypeError, ValueError where it isn't one."""
    stamp = part(part(line, "info"), "prime_rl")
    return Identity(
        traces=(str(line["id"]),),
        group=stamp.get("group_id"),
        kind=RunKind(stamp.get("kind") or origin.kind or RunKind.TRAIN),
        task=str(part(line, "task").get("idx", "")),
        scope=origin.scope,
    )


def read(line: Json, origin: Origin, era: Era) -> Recorded:
    """The trace as a rollout; the line's dicts become the record's. Raises Rejected."""
    identity, stamp = identify(line, origin), part(part(line, "info"), "prime_rl")
    version = stamp.get("policy_version")
    reward = reward_of(line)
    status, lineage = status_of(line, reward), take_lineage(line)
    say_sampling(line)
    graph = Graph()
    graph.add(line.pop("nodes"))
    record = {**line, "reward": reward, "grain": Grain.NONE if version is None else Grain.EPISODE}
    return Recorded(
        era=era,
        identity=identity,
        trajectory=graph.trajectory(record, version),
        status=status,
        env=stamp.get("env_name") or origin.env,
        policy=None if version is None else Span(version, version),
        step=origin.written_step,
        filtered=stamp.get("is_filtered"),
        lineage=lineage,
        notes=graph.late,
    )
