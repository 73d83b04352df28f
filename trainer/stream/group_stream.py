"""`GroupStream`: whole GRPO groups off the log, judged and masked, each trained at most once (design/trainer#stream).

    async with GroupStream(settings) as stream:
        async for batch in stream.batches():
            tensors = pack(batch)
            ...
            await stream.trained(batch, publish="s3://weights/1")

Guarantees: a group is yielded whole, once it is resolved, judged for the very step that its batch is for; what
`trained` was awaited for is on the log, and is never yielded again, by this process or by the next one; a batch that
isn't told comes again; unwritten events are written before the stream waits or ends. Leaves out: reading
(`batch_reader`), lending (`rolloutlog.trainer.dispatch.lending`), writing (`step_recorder`), where a start goes on from
(`starting`), and several ranks: one process reads and writes.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

from rolloutlog.contract.errors import NotOpen, SettingsError
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.loop.collection import set_apart
from rolloutlog.trainer.dispatch.batch import Batch, LeftOut
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.groups.eval_rewards import EvalReward
from rolloutlog.trainer.groups.filters import GroupFilter, installed_filters, with_filters
from rolloutlog.trainer.steps.step_outcome import StepOutcome
from rolloutlog.trainer.steps.step_report import StepReport
from rolloutlog.trainer.stream.batch_iterator import BatchIterator
from rolloutlog.trainer.stream.batch_reader import BatchReader
from rolloutlog.trainer.stream.opening import Parts, open_parts
from rolloutlog.trainer.stream.skipping import skip_open_groups
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.stream.step_recorder import StepRecorder
from rolloutlog.trainer.stream.wish import Wish


@dataclass(slots=True, frozen=True)
class _Opened:
    parts: Parts
    lending: Lending
    recorder: StepRecorder
    reader: BatchReader


class GroupStream:
    """The trainer's end of the log. `start` says from which step, with or without payloads, and so on."""

    def __init__(
        self,
        settings: Settings | None = None,
        start: Start | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
        filters: Sequence[GroupFilter] = (),
    ) -> None:
        """What is given by name overrides `settings`; `filters` are asked besides those that the settings name. Raises
        SettingsError."""
        settings = Settings.of(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._filters = (*installed_filters(settings.trainer.filters), *filters)
        self._settings = with_filters(settings, self._filters)
        self._start = start or Start()
        self._stack = AsyncExitStack()
        self._opened: _Opened | None = None
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._stack.enter_context(set_apart())
        try:
            parts = await open_parts(self._stack, self._settings, self._start, self._filters)
        except BaseException:
            await self._stack.aclose()
            raise
        lending = Lending(parts.sampler, parts.step)
        recorder = StepRecorder(parts, lending, self._settings.run_id)
        reader = BatchReader(parts, self._settings, self._start, lending, recorder)
        if self._start.latest:
            await self._skip(parts, recorder)
        self._opened = _Opened(parts, lending, recorder, reader)
        if self._stopping:
            reader.stop()
        return self

    async def _skip(self, parts: Parts, recorder: StepRecorder) -> None:
        try:
            await skip_open_groups(parts, recorder)
        except BaseException:
            await recorder.ended()
            await self._stack.aclose()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        opened = self._open()
        opened.reader.stop()
        try:
            await opened.reader.turn_to(None)
            await opened.recorder.ended()
            if kind is None:
                await opened.recorder.write_notes()
        finally:
            opened.recorder.end()
            await self._stack.aclose()

    @property
    def history(self) -> History:
        """The policies known so far."""
        return self._parts.history

    @property
    def resumed(self) -> SavedCheckpoint | None:
        """The checkpoint that this start went back to; None where it went back to none."""
        return self._parts.resumed

    @property
    def step(self) -> int | None:
        """The next train step; None where each group has its own."""
        return self._open().lending.step

    @property
    def last_step(self) -> int:
        """The last train step on the log of the current timeline; 0 before the first."""
        return min(assembly.endings.closed for assembly in self._parts.intake.assemblies.values())

    def doomed(self, step: int) -> bool:
        """True if what the current policy samples couldn't be trained at that step, so that weights must be published
        before it (design/trainer#doomed)."""
        return self._parts.sampler.doomed(step)

    def take_evals(self) -> dict[str, EvalReward]:
        """Rewards of the evaluation rollouts that were read since they were taken last, by environment."""
        return self._parts.intake.evals.take()

    def stop(self) -> None:
        """Let `batches` end at its next wait; a blob store that is away is waited for no more."""
        self._stopping = True
        if self._opened is not None:
            self._opened.reader.stop()

    def batches(
        self,
        groups: int | None = None,
        *,
        drain: bool = False,
        ahead: bool = False,
        short_after_s: float | None = None,
    ) -> BatchIterator:
        """Batches of `groups` whole groups (None: the run's B), for one step after another, each lent until the next is
        asked for; with `ahead` the next is drawn while one is trained.

        `drain` ends at the end that the log has now, as it always does offline; the last batch may be short. With
        `short_after_s` any is, once nothing came for so many seconds and no group that was read lacks a member. Raises
        Starved when no whole group comes for `starve_s` seconds, or no policy while it isn't a trainer's stream,
        TopicMissing when the topics are deleted, Fenced when another trainer starts. A wait that is cancelled loses
        nothing. One iterator at a time: what another one was lent and hasn't told goes back.
        """
        size = self._settings.trainer.batch_groups if groups is None else groups
        if size < 1:
            raise SettingsError(f"a batch has at least one group, not {size}")
        if size > self._settings.trainer.buffer_groups:
            raise SettingsError(f"a batch of {size} groups is above buffer_groups")
        opened = self._open()
        opened.recorder.ensure_open()
        drain = drain or opened.parts.rollouts.offline
        return BatchIterator(opened.reader, opened.lending, Wish(size, drain, short_after_s), ahead=ahead)

    def trained(
        self,
        batch: Batch,
        *,
        publish: str | None = None,
        digest: str | None = None,
        checkpoint: str | None = None,
        checkpoint_digest: str | None = None,
        without: Mapping[str, LeftOut] | None = None,
    ) -> Coroutine[Any, Any, StepReport]:
        """Record that a batch was trained, in one transaction with the unwritten events and, given `publish`, the
        policy, and, given `checkpoint`, that the state after it was saved.

        `publish` is where the weights lie, `digest` theirs; `checkpoint` where the file of `state_dict(batch)` and of
        all else lies, `checkpoint_digest` its own; groups in `without` weren't trained, for that reason. It is
        told from this call on, and goes on though the caller is cancelled: to call it again is to hear how it ended.
        Batches are told in the order in which they were drawn. Raises ValueError for one that was told before, or isn't
        lent any more; NotOpen once `async with` was left; Fenced where another trainer has started, and says whether
        the step is on the log; ClientFailed where nobody can know that, and then the stream has ended. After any other
        error nothing was written.
        """
        saved = None if checkpoint is None else (checkpoint, checkpoint_digest)
        return self._open().recorder.tell(batch, StepOutcome(publish, digest, saved, dict(without or {})))

    async def saved(
        self,
        step: int,
        *,
        publish: str | None = None,
        digest: str | None = None,
        checkpoint: str | None = None,
        checkpoint_digest: str | None = None,
    ) -> None:
        """Record what the last step left, as `trained` does, for who hears only later that it was the last: the log
        ended, or somebody asked to stop. Raises ValueError where this stream told no such step, or another one after
        it, or its weights are out; and what `trained` raises."""
        saved = None if checkpoint is None else (checkpoint, checkpoint_digest)
        await self._open().recorder.save(step, StepOutcome(publish, digest, saved))

    def state_dict(self, batch: Batch | None = None) -> dict[str, Any]:
        """What a checkpoint file holds of the stream: the run, and the timeline and step that the state is of, which is
        the last step, or that of a `batch` which is about to be told with `checkpoint`.

        `partitions` says where things stand; a resume reads the log's own word.
        """
        parts = self._parts
        assemblies = parts.intake.assemblies.values()
        step = batch.step if batch else self.last_step
        marks = [assembly.marks().model_dump() for assembly in assemblies]
        return {"run": self._settings.run_id, "timeline": parts.history.timeline, "step": step, "partitions": marks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the checkpoint of this state, as `Start(resume=state)` does. Raises RuntimeError once the stream
        is open."""
        if self._opened is not None:
            raise RuntimeError("load_state_dict is for before the stream is opened")
        self._start = replace(self._start, resume=dict(state))

    @property
    def _parts(self) -> Parts:
        return self._open().parts

    def _open(self) -> _Opened:
        if self._opened is None:
            raise NotOpen("this GroupStream isn't open", "use it inside `async with`")
        return self._opened
