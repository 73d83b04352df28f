"""What `[loop]` names as sources of tasks, looked at before anything of a run is started (design/live-loop#run).

Guarantees: an environment that isn't there or can't be loaded, one without tasks or held-out ones where these are
wanted, and a file that isn't there or whose first row is none are refused. Leaves out: later rows, which the feeder
reads.
"""

from __future__ import annotations

from pathlib import Path

from rolloutlog.contract.service_settings.loop_settings import LoopSettings
from rolloutlog.producers.environments.environment_table import environment_named, environments_of
from rolloutlog.producers.feeding.task_source import TaskSource, environment_tasks, file_tasks, held_out_tasks


def fed_environments(loop: LoopSettings) -> list[str]:
    """The name that seeds of each of them have, in order. Raises SettingsError, PathUnusable."""
    environments_of(loop.environments)  # what workers do
    sources = [_source(loop, name) for name in loop.environments]
    for source in sources:
        next(source.tasks(0), None)
    if loop.eval_every is not None:
        for name in loop.environments:
            held_out_tasks(environment_named(name), loop.seed)
    return [source.env for source in sources]


def _source(loop: LoopSettings, name: str) -> TaskSource:
    if (file := loop.tasks.get(name)) is not None:
        return file_tasks(name, Path(file))
    return environment_tasks(environment_named(name), loop.seed)
