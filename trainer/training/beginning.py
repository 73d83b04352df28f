"""With which weights a trainer begins, and from which step (design/live-loop#resuming).

Guarantees: the weights are those after the step that it goes on from, so no step counts as trained whose work is lost.
After a stop or a crash that is the last step wherever its weights can be had; else the newest one that was kept, and
the steps after it become void. Leaves out: reading the groups, which the stream does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.policy_versions import PublishedPolicy, SavedCheckpoint
from rolloutlog.contract.events.watermarks import newest_live
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.live_watermarks import live_watermarks
from rolloutlog.kafka.read.policy_log import PolicyFold, find_published, read_policy_log
from rolloutlog.kafka.run_record import read_run

Resume: TypeAlias = Policy | Literal["checkpoint"]


@dataclass(slots=True, frozen=True)
class Beginning:
    """What to begin with: the `weights` of a policy, with the optimiser of a `checkpoint`, if there is one; a
    `checkpoint` without weights is gone back to; without either it is the model's first. `is_back`: the weights are
    older than the last step, and what came after them becomes void."""

    weights: PublishedPolicy | None = None
    checkpoint: SavedCheckpoint | None = None
    is_back: bool = False

    @property
    def step(self) -> int:
        """The train step after which it goes on."""
        if self.weights is not None:
            return self.weights.policy.version
        return 0 if self.checkpoint is None else self.checkpoint.step


def beginning(last_step: int, current: PublishedPolicy | None, checkpoint: SavedCheckpoint | None) -> Beginning:
    """Of a run with a timeline, without being told: from the last step on, else from the newest one of which everything
    is known."""
    published = -1 if current is None else current.policy.version
    saved = -1 if checkpoint is None else checkpoint.step
    if current is not None and published == last_step > saved:
        return Beginning(current, checkpoint)
    if checkpoint is not None and saved >= published:
        return Beginning(checkpoint=checkpoint)
    return Beginning(current, is_back=published < last_step)


async def read_beginning(
    settings: Settings, resume: Resume | None, is_sound: Callable[[SavedCheckpoint], bool]
) -> Beginning:
    """Of the run as it stands on the log; `resume` as it was asked for, and whether the file of a checkpoint is there.
    Raises SettingsError where nothing is there to go back to, UnknownPolicy, and what reading raises."""
    connection = await connect(settings, Role.TRAINER)
    policies, run = await read_policy_log(connection), await read_run(connection)
    history = policies.history
    if resume is not None:
        return await _asked(connection, resume, policies, is_sound)
    if not history.started:
        return Beginning()
    marks = live_watermarks(run, policies)
    current = history.current and (policies.current or await find_published(connection, history.current))
    last = 0 if marks is None else marks.step
    return beginning(last, current, newest_live(policies.checkpoints.values(), history))


async def _asked(
    connection: Connection, resume: Resume, policies: PolicyFold, is_sound: Callable[[SavedCheckpoint], bool]
) -> Beginning:
    """What somebody asks to go back to: a checkpoint, also where it is named by its policy, else published weights; of
    old checkpoints the log alone is left."""
    live = {saved.policy: saved for saved in policies.checkpoints.values() if _is_live(saved, policies)}
    if isinstance(resume, Policy):
        is_published = resume in policies.history.published
        if resume in live and (not is_published or is_sound(live[resume])):
            return Beginning(checkpoint=live[resume])
        return Beginning(await find_published(connection, resume), is_back=True)
    if not live:
        raise SettingsError("there is no checkpoint that the current timeline shares", "start without --resume")
    return Beginning(checkpoint=newest_live(live.values(), policies.history))


async def published_weights(settings: Settings) -> dict[Policy, str]:
    """Where the weights lie that the run has published, as far back as a policy log remembers. Raises what reading
    raises."""
    policies = await read_policy_log(await connect(settings, Role.TRAINER), allow_open=True)
    return {policy: said.uri for policy, said in policies.publications.items() if said.uri is not None}


def _is_live(saved: SavedCheckpoint, policies: PolicyFold) -> bool:
    return policies.history.is_live(saved.timeline, saved.step)
