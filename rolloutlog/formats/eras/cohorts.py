"""E2: a bare trace whose stamp stands at the top of the line (design/eras#cohorts).

Guarantees: `all` and `effective` copies of a trace have the same value. Leaves out: the run, which E2 doesn't name.
"""

from __future__ import annotations

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.eras.prompts import trace_prompt
from rolloutlog.formats.eras.trace import is_scored, read_bare
from rolloutlog.formats.foreign.glance import Glance, task_key, trace_ids
from rolloutlog.formats.foreign.json_parts import Json
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity


def identify(glance: Glance, origin: Origin) -> TraceIdentity:
    """Whose a trace is. Raises ValueError for a kind that is neither train nor eval."""
    return TraceIdentity(
        traces=trace_ids(glance),
        group=glance.group_id,
        kind=RunKind(glance.kind or origin.kind or RunKind.TRAIN),
        env=origin.env_of(glance.env_name),
        task=task_key(glance),
        prompt="" if glance.group_id else trace_prompt(glance),
        group_size=origin.group_size,
        scored=is_scored(glance.rewards),
    )


def read(line: Json, glance: Glance, origin: Origin) -> RecordedRollout:
    """The trace as a rollout. Raises Rejected."""
    return read_bare(
        line,
        origin,
        glance.policy_version,
        env=origin.env_of(glance.env_name),
        step=glance.eval_step,
        filtered=glance.is_filtered,
    )
