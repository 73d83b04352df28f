"""E1 and E1b: a line is a bare trace; the replay branches stamped it with `info.prime_rl` (reference 1.4).

Guarantees: without a stamp nothing is known of group, policy or environment but what the file's name says. Leaves out:
the index files beside them (`spans`).
"""

from __future__ import annotations

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.producers.importing.foreign import Json
from rolloutlog.producers.importing.glance import Glance, Stamp, info_of, task_key, trace_ids
from rolloutlog.producers.importing.prompts import trace_prompt
from rolloutlog.producers.importing.recorded import Identity, Origin, Recorded
from rolloutlog.producers.importing.trace import is_scored, read_bare


def identify(glance: Glance, origin: Origin) -> Identity:
    """Whose a trace is. Raises ValueError for a kind that is neither train nor eval."""
    stamp = _stamp(glance)
    return Identity(
        traces=trace_ids(glance),
        group=stamp.group_id,
        kind=RunKind(stamp.kind or origin.kind or RunKind.TRAIN),
        env=origin.env_of(stamp.env_name),
        task=task_key(glance),
        prompt="" if stamp.group_id else trace_prompt(glance),
        group_size=origin.group_size,
        scored=is_scored(glance.rewards),
    )


def read(line: Json, glance: Glance, origin: Origin) -> Recorded:
    """The trace as a rollout. Raises Rejected."""
    stamp = _stamp(glance)
    return read_bare(line, origin, stamp.policy_version, env=origin.env_of(stamp.env_name), filtered=stamp.is_filtered)


def _stamp(glance: Glance) -> Stamp:
    stamp = info_of(glance).prime_rl
    return stamp if isinstance(stamp, Stamp) else Stamp()
