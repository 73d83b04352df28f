"""Settings of workers: what their engine is made with, and what it may do (design/live-loop#updates).

Guarantees: each process has its own; none changes what is on the log already. Leaves out: what options an engine has,
which it reads, and refuses, itself.
"""

from __future__ import annotations

from pydantic import Field

from rolloutlog.contract.section import LONGEST_S, Section

EngineOption = bool | int | float | str


class WorkerSettings(Section):
    """Workers of this deployment."""

    engine: dict[str, EngineOption] = Field(default_factory=dict[str, EngineOption])
    """Options of the installed engine that `--engine` names, such as `on_swap` of the torch one."""
    sample_s: float | None = Field(default=600.0, gt=0, le=LONGEST_S)
    """Seconds that one answer of the engine may take, after which its member is given back; unset: any number."""
    rollout_s: float | None = Field(default=None, gt=0, le=LONGEST_S)
    """Seconds that a whole rollout may take, after which it has failed; unset: any number."""
    mix_policies: bool = True
    """Whether one answer may be sampled by several policies; if not, it fails its member."""
