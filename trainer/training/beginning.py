"""With which weights a trainer begins, and from which step (design/live-loop#resuming).

Guarantees: the weights are those after the step that it goes on from, so no step counts as trained whose work is lost.
After a stop or a crash that is the last step wherever its weights can be had; else the newest one that was kept, and
the steps after it become void. Leaves out: reading the groups, which the stream does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.policy_versions import PublishedPolicy, SavedCheckpoint
from rolloutlog.contract.events.watermarks import newest_live
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.live_watermarks import live_watermarks
from rolloutlog.kafka.read.policy_log import PolicyFold, find_published, read_policy_log
from rolloutlog.kafka.run_record import read_run

Resume: TypeAlias = Policy | Literal["checkpoint"]


@dataclass(slots=True, frozen=True)
class Beginning:
    """What to begin with: the `weights` of a policy (None: the model's first), the parts of a `checkpoint` (all of them
    if its step is the one to go on from, else its optimiser's), and `resume`, what the stream goes back to."""

    weights: PublishedPolicy | None = None
    checkpoint: SavedCheckpoint | None = None
    resume: Resume | None = None


def beginning(
    last_step: int, current: PublishedPolicy | None, checkpoint: SavedCheckpoint | None, is_started: bool
) -> Beginning:
    """Without being told: from the last step on, else from the newest one of which everything is known."""
    if not is_started:
        return Beginning()
    published, saved = (-1 if one is None else one.policy.version for one in (current, checkpoint))
    if saved == last_step:
        return Beginning(checkpoint=checkpoint, resume="checkpoint")
    if published == last_step:
        return Beginning(current, checkpoint)
    if checkpoint is not None and saved >= published:
        return Beginning(checkpoint=checkpoint, resume="checkpoint")
    return Beginning(current, None, None if current is None else current.policy)


async def read_beginning(settings: Settings, resume: Resume | None) -> Beginning:
    """Of the run as it stands on the log; `resume` as it was asked for. Raises SettingsError where nothing is there to
    go back to, UnknownPolicy, and what reading raises."""
    connection = await connect(settings, Role.TRAINER)
    policies, run = await read_policy_log(connection), await read_run(connection)
    checkpoint = newest_live(policies.checkpoints.values(), policies.history)
    match resume:
        case "checkpoint" if checkpoint is None:
            raise SettingsError("there is no checkpoint that the current timeline shares", "start without --resume")
        case "checkpoint":
            return Beginning(checkpoint=checkpoint, resume=resume)
        case Policy():
            return Beginning(await find_published(connection, resume), None, resume)
        case None:
            marks = live_watermarks(run, policies)
            current = await _current(settings, policies)
            last = 0 if marks is None else marks.step
            return beginning(last, current, checkpoint, policies.history.started)


async def _current(settings: Settings, policies: PolicyFold) -> PublishedPolicy | None:
    if policies.current is not None or policies.history.current is None:
        return policies.current
    return await find_published(await connect(settings, Role.TRAINER), policies.history.current)
