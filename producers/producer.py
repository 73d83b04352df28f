"""RolloutProducer: how a worker puts rollouts on the log.

Guarantees: a record that is oversize, malformed or inconsistent raises a typed error before it is written, and those
after it go through; what `publish` returned for is acknowledged by all in-sync replicas; what was submitted is
awaited by `flush`, or by leaving the block; publishing the same attempt again is harmless, since its id is the same.
`abort`, `fail` and `cancel` end an attempt or a member that has no result, so that its group always ends. Leaves out:
taking seeds (`seed_leases`) and running environments (`rollout_worker`).

    async with RolloutProducer(namespace="run-7", bootstrap_servers="localhost:9092") as producer:
        await producer.publish(Rollout.flat(prompt_ids=..., response_ids=..., logprobs=..., versions=3, ...))
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any, Self

from rolloutlog.contract.errors import BrokerUnreachable, NotOpen
from rolloutlog.contract.events.event import Outgoing, annotation_event, cancelled_event
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.checked_record import checked_event, checked_rollout
from rolloutlog.producers.endings import ErrorFact, aborted, failed
from rolloutlog.producers.open_run import OpenRun, open_run
from rolloutlog.producers.published import Published, Submission

PATIENCE_S = 60.0
"""A record that isn't acknowledged for so long raises BrokerUnreachable: nothing waits silently
(design/exactly-once#waiting)."""
LEAVE_S = 5.0
"""How long a block that an exception ends still waits for what was submitted."""


class RolloutProducer:
    """An idempotent producer of rollouts: one a process, used by one event loop."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
        blobs: str | None = None,
        source: str | None = None,
        patience_s: float = PATIENCE_S,
        blob_patience_s: float | None = None,
        role: Role = Role.PRODUCERS,
    ) -> None:
        """What is given by name overrides `settings`. `source` is who writes, `/producers/<host>/<pid>` unless given;
        `role` says whose rights are needed.

        `patience_s`: how long an acknowledgement is waited for; a blob store that is away as long, unless
        `blob_patience_s` is given.

        Raises SettingsError.
        """
        self.settings = Settings.of(
            settings,
            namespace=namespace,
            bootstrap_servers=bootstrap_servers,
            command_config=command_config,
            blobs=blobs,
        )
        self.source = source or f"/producers/{socket.gethostname()}/{os.getpid()}"
        self.patience_s = patience_s
        self._role = role
        self._blob_patience_s = patience_s if blob_patience_s is None else blob_patience_s
        self._run: OpenRun | None = None
        self._writer: Writer | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(self.patience_s if kind is None else LEAVE_S)

    async def open(self) -> None:
        """Connect and read what the run is. Raises BrokerUnreachable, and RunMismatch where no run is declared."""
        self._run = await open_run(self.settings, self._role, blob_patience_s=self._blob_patience_s)
        writer = Writer(self._run.connection, self._run.blobs)
        await writer.__aenter__()
        self._writer = writer

    async def close(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until what was submitted is on the log, and stop. Raises the first failure since the last flush."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            await writer.flush(patience_s)
        finally:
            await writer.close()

    @property
    def run(self) -> OpenRun:
        """What the run is. Raises NotOpen."""
        if self._run is None:
            raise NotOpen("this producer was never opened")
        return self._run

    @property
    def writer(self) -> Writer:
        """The client. Raises NotOpen before `open` and after `close`."""
        if self._writer is None:
            raise NotOpen("this producer isn't open")
        return self._writer

    async def publish(self, rollout: Rollout) -> Published:
        """Write one attempt and wait until it is on the log.

        Raises InvalidRecord, RecordTooLarge, BlobUnavailable before anything is written; BrokerUnreachable after
        `patience_s` seconds, when nobody knows whether it arrived: publish it again, its id is the same.
        """
        return await self.acknowledged(await self.submit(rollout))

    async def submit(self, rollout: Rollout) -> Submission:
        """Hand one attempt to the client, which batches; waits only while its buffer is full. Raises as `publish`."""
        return await self.write(checked_rollout(rollout, source=self.source, now=now_ms()))

    async def publish_many(self, rollouts: Iterable[Rollout]) -> list[Published]:
        """Write attempts together, in order, and wait for all: a bad one raises before any of them is written."""
        now = now_ms()
        records = [checked_rollout(rollout, source=self.source, now=now) for rollout in rollouts]
        submissions = [await self.write(record) for record in records]
        await self.flush()
        return [await submission for submission in submissions]

    async def flush(self) -> None:
        """Wait until all that was submitted is on the log. Raises the first failure since the last flush."""
        await self.writer.flush(self.patience_s)

    async def abort(self, slot: Slot, partial: Trajectory | None = None) -> Published:
        """Publish an attempt as aborted; `partial` is what it sampled, from which the next attempt resumes."""
        return await self.publish(aborted(slot, partial))

    async def fail(self, slot: Slot, error: ErrorFact, partial: Trajectory | None = None) -> Published:
        """Publish an attempt as failed: the member resolves."""
        return await self.publish(failed(slot, error, partial))

    async def cancel(
        self, group: str, members: Iterable[int], reason: str, *, group_size: int, kind: RunKind = RunKind.TRAIN
    ) -> Published:
        """Publish `group.cancelled`: these members get no record any more; each that is open resolves as cancelled."""
        record = checked_event(
            lambda: cancelled_event(
                group=group,
                group_size=group_size,
                members=list(members),
                reason=reason,
                source=self.source,
                now=now_ms(),
                kind=kind,
            ),
            read_cancelled,
        )
        return await self.acknowledged(await self.write(record))

    async def annotate(self, slot: Slot, facts: Mapping[str, Any]) -> Published:
        """Add late facts to an attempt, such as `{"reward": 1.0}`; the newest wins per key."""
        record = checked_event(lambda: annotation_event(slot, facts, source=self.source, now=now_ms()), read_annotation)
        return await self.acknowledged(await self.write(record))

    async def write(self, record: Outgoing) -> Submission:
        """Hand a record on `rollouts` to the client, which puts it on its group's partition."""
        return Submission(record, await self.writer.send(record), self.run.connection)

    async def acknowledged(self, submission: Submission) -> Published:
        """The handle of what was submitted, within `patience_s` seconds."""
        try:
            return await asyncio.wait_for(submission.wait(), self.patience_s)
        except TimeoutError as error:
            servers = self.run.connection.bootstrap_servers
            raise BrokerUnreachable(
                f"{submission.event_id} isn't acknowledged by {servers} after {self.patience_s:.0f} s"
            ) from error
