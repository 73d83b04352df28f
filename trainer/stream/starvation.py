"""Starvation: a trainer that gets nothing to train for too long fails with who is late (design/trainer#starvation).

Guarantees: the message names a group, its partition, the offset read and the lag. Leaves out: deciding to go on without
somebody, which is what straggler policies are for.
"""

from __future__ import annotations

from collections.abc import Mapping

from rolloutlog.contract.errors import Starved
from rolloutlog.contract.policies import History
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup


class StarvationClock:
    """Seconds for which a trainer has waited in vain, of whatever monotonic clock is passed in. It runs while somebody
    waits, not while a step is trained."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waited = 0.0
        self._since: float | None = None

    def run(self, now: float) -> None:
        """Somebody waits."""
        self._since = now

    def pause(self, now: float) -> None:
        """Nobody waits any more."""
        if self._since is not None:
            self._waited += now - self._since
        self._since = None

    def progress(self, now: float) -> None:
        """Begin anew: what a trainer waits for has come."""
        self._waited = 0.0
        self._since = None if self._since is None else now

    def late(self, now: float) -> bool:
        """True once nothing has come for too long."""
        return self._since is not None and self._waited + now - self._since >= self._limit_s


def no_policy(namespace: str) -> Starved:
    """The error where groups wait and no policy was ever published or imported."""
    return Starved(
        f"no policy was ever published or imported in namespace {namespace}: nobody can say how old a token is",
        "start the trainer, whose GroupStream publishes version 0 first; or publish with PolicyPublisher",
    )


def no_weights(history: History, step: int | None, *, ready: int, wanted: int) -> Starved:
    """The error where whatever is sampled from now on would be too old for the step that is collected."""
    since = "never" if history.current is None else f"last after step {history.current.version}"
    return Starved(
        f"weights were published {since}: what they sample is too old for step {step}, so nobody is asked for more; "
        f"{ready} of {wanted} groups are ready",
        "publish with each step, `trained(batch, publish=...)`, or say in `trainer.sync_period` how seldom you do",
    )


def starved(
    assemblies: Mapping[int, Assembly],
    lags: Mapping[int, int],
    *,
    seconds: float,
    ready: int,
    wanted: int,
    lost: str = "",
) -> Starved:
    """The error that says what is missing, and where; `lags` are the records left to read, by partition, `lost` says
    what came and couldn't be trained."""
    waiting = [pending for assembly in assemblies.values() for pending in assembly.groups.values()]
    what = f"no whole group for {seconds:g} s: {ready} of {wanted} groups are ready; "
    if lost:
        what += f"since the last batch the trainer {lost}; "
    if not waiting:
        read = ", ".join(f"{p} at offset {a.next_offset} (lag {lags[p]})" for p, a in assemblies.items())
        return Starved(f"{what}no group is on the log: partitions {read}")
    if ready == len(waiting):
        return Starved(
            f"{what}no other group is on the log, so no batch gets full",
            "ask for more rollouts, or lower `trainer.batch_groups`; `train run --drain` trains what is ready and ends",
        )
    oldest = min(waiting, key=lambda pending: (not pending.group.open_members, pending.timestamp))
    assembly = assemblies[oldest.partition]
    return Starved(
        f"{what}group {oldest.id} on partition {oldest.partition}, read up to offset {assembly.next_offset} "
        f"(lag {lags[oldest.partition]}), {_missing(oldest)}"
    )


def _missing(pending: PendingGroup) -> str:
    late = pending.group.open_members
    if not late:
        return "is held for a later step"
    if pending.cut:
        return (
            f"lacks members {late[:8]}: the beginning of its partition was deleted, and perhaps records of it, so it "
            "is trained only with all of its members"
        )
    return "waits for " + ", ".join(f"member {i} ({pending.group.status(i)})" for i in late[:8])
