"""PolicyPublisher: puts on the log which weights were published, for trainers that aren't ours
(design/record#policies).

Guarantees: a start is one transaction (timeline and its first policy); versions rise; a second publisher of the run, or
a trainer of ours, fences the first, which stops with Fenced. Leaves out: the weights themselves, and checkpoints: our
own trainer publishes with its step's transaction.

    async with PolicyPublisher(namespace="run-7", bootstrap_servers="localhost:9092") as policies:
        await policies.publish(1, uri="s3://weights/step-1")
"""

from __future__ import annotations

from typing import Self

from rolloutlog.contract.errors import InvalidRecord, NotOpen, UnknownPolicy
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.policy_versions import policy_published, timeline_started
from rolloutlog.contract.policies import LAST_POLICY, Fork, History, Policy
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.kafka.read.policy_log import read_policy_log
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.producers.open_run import OpenRun, open_run

ROLE = "trainer"
SOURCE = "/trainer"


class PolicyPublisher:
    """One life of a trainer: it starts a timeline when it opens."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
        resume: Policy | None = None,
        uri: str | None = None,
        digest: str | None = None,
    ) -> None:
        """`resume` is the policy that this life goes on from; None starts anew at version 0.

        `uri` and `digest` are of the weights that it starts with. Raises SettingsError.
        """
        self.settings = Settings.of(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._resume = resume
        self._uri, self._digest = uri, digest
        self._run: OpenRun | None = None
        self._writer: TransactionalWriter | None = None
        self._current: Policy | None = None

    async def __aenter__(self) -> Self:
        run = self._run = await open_run(self.settings, Role.PUBLISHERS)
        writer = TransactionalWriter(run.connection, run.connection.names.transactional_id(ROLE))
        await writer.start()
        self._writer = writer
        try:
            await self._start((await read_policy_log(run.connection)).history)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop. The timeline stays the current one until another starts."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    @property
    def current(self) -> Policy:
        """The policy that was published last. Raises NotOpen."""
        if self._current is None:
            raise NotOpen("this publisher isn't open")
        return self._current

    async def publish(self, version: int, *, uri: str | None = None, digest: str | None = None) -> Policy:
        """Put on the log that the weights after train step `version` are out. Raises InvalidRecord unless it rises,
        Fenced."""
        if version <= self.current.version:
            raise InvalidRecord(
                RejectReason.INCONSISTENT, f"version {version} can't come after {self.current}", "versions must rise"
            )
        if version >= LAST_POLICY:
            raise InvalidRecord(RejectReason.SHAPE, f"version {version} isn't below {LAST_POLICY}")
        policy = Policy(self.current.timeline, version)
        await self._write(policy, self._published(policy, uri, digest))
        return policy

    async def _start(self, history: History) -> None:
        fork = self._fork(history)
        policy = Policy(history.next_timeline(), fork.step)
        started = timeline_started(
            policy.timeline, fork.parent, fork.step, run=self._known.id, source=SOURCE, now=now_ms()
        )
        await self._write(policy, started, self._published(policy, self._uri, self._digest))

    def _fork(self, history: History) -> Fork:
        if self._resume is None:
            return Fork(None, 0)
        if self._resume not in history.published:
            raise UnknownPolicy(f"policy {self._resume} was never published, so nothing can go on from it")
        return Fork(self._resume.timeline, self._resume.version)

    def _published(self, policy: Policy, uri: str | None, digest: str | None) -> Outgoing:
        return policy_published(policy, run=self._known.id, source=SOURCE, now=now_ms(), uri=uri, digest=digest)

    async def _write(self, policy: Policy, *records: Outgoing) -> None:
        if self._writer is None:
            raise NotOpen("this publisher isn't open")
        async with self._writer.transaction() as transaction:
            await transaction.send_all(records)
        self._current = policy

    @property
    def _known(self) -> OpenRun:
        if self._run is None:
            raise NotOpen("this publisher isn't open")
        return self._run
