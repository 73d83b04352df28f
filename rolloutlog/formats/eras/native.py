"""E3: a bare trace that names its run itself, in two forms (design/eras#native).

Guarantees: verifiers 0.2.1 (rewards are numbers) and 0.3.0 (rewards have weights) are read by one rule. Leaves out: the
dispatch step, which E3 doesn't record: the step of its `run` is the folder's.
"""

from __future__ import annotations

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.eras.prompts import trace_prompt
from rolloutlog.formats.eras.trace import is_scored, read_bare
from rolloutlog.formats.foreign.glance import Glance, RunGlance, info_of, task_key, trace_ids
from rolloutlog.formats.foreign.json_parts import Json
from rolloutlog.formats.foreign.recorded import Origin, RecordedRollout, TraceIdentity


def identify(glance: Glance, origin: Origin) -> TraceIdentity:
    """Whose a trace is. Raises ValueError for a kind that is neither train nor eval."""
    info, run = info_of(glance), glance.run or RunGlance()
    return TraceIdentity(
        traces=trace_ids(glance),
        run=run.id,
        group=info.group_id,
        kind=RunKind(run.type or origin.kind or RunKind.TRAIN),
        env=origin.env_of(info.env_name),
        task=task_key(glance),
        prompt="" if info.group_id else trace_prompt(glance),
        scope=run.id,
        group_size=origin.group_size,
        scored=is_scored(glance.rewards),
    )


def read(line: Json, glance: Glance, origin: Origin) -> RecordedRollout:
    """The trace as a rollout. Raises Rejected."""
    info, run = info_of(glance), glance.run or RunGlance()
    return read_bare(line, origin, info.policy_version, env=origin.env_of(info.env_name), step=run.step)
