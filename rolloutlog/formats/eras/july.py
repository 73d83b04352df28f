"""E1 and E1b: a line is a bare trace; the replay branches stamped it with `info.prime_rl` (design/eras#july).

Guarantees: without a stamp nothing is known of group, policy or environment but what the file's name says. Leaves out:
the index files beside them (`rolloutlog.producers.importing.parsing.july_index`).
"""

from __future__ import annotations

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.eras.prompts import trace_prompt
from rolloutlog.formats.eras.trace import is_scored, read_bare
from rolloutlog.formats.foreign.glance import Glance, StepStamp, info_of, task_key, trace_ids
from rolloutlog.formats.foreign.json_parts import Json
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity


def identify(glance: Glance, origin: Origin) -> TraceIdentity:
    """Whose a trace is. Raises ValueError for a kind that is neither train nor eval."""
    stamp = _stamp(glance)
    return TraceIdentity(
        traces=trace_ids(glance),
        group=stamp.group_id,
        kind=RunKind(stamp.kind or origin.kind or RunKind.TRAIN),
        env=origin.env_of(stamp.env_name),
        task=task_key(glance),
        prompt="" if stamp.group_id else trace_prompt(glance),
        group_size=origin.group_size,
        scored=is_scored(glance.rewards),
    )


def read(line: Json, glance: Glance, origin: Origin) -> RecordedRollout:
    """The trace as a rollout. Raises Rejected."""
    stamp = _stamp(glance)
    return read_bare(line, origin, stamp.policy_version, env=origin.env_of(stamp.env_name), filtered=stamp.is_filtered)


def _stamp(glance: Glance) -> StepStamp:
    stamp = info_of(glance).prime_rl
    return stamp if isinstance(stamp, StepStamp) else StepStamp()
