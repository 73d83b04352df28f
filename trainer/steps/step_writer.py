"""The trainer's pen: whole transactions, one after the other, under the one id `<ns>.trainer` (design/trainer#pen).

Guarantees: what is given to one `write` is on the log together or not at all, and `write` returns in bounded time. A
transaction that timed out, in a process that stood still or while the broker restarted, is written again; one whose
answer was lost is looked up by its mark; only a trainer that started later ends this one, and the error then says
whether the last write is on the log. Leaves out: which records those are (`step_events`), and overlapping calls:
whoever writes holds `turn`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from uuid import uuid4

from rolloutlog.contract.errors import (
    BlobUnavailable,
    BrokerUnreachable,
    ClientFailed,
    Fenced,
    NotAllowed,
    RecordTooLarge,
    RolloutlogError,
    TopicMismatch,
)
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.kafka.client.connection import HIDDEN_S, TRANSACTION_TIMEOUT_MS, Connection
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.run_record import RunRecord, read_run
from rolloutlog.kafka.write.batching import Written
from rolloutlog.kafka.write.transactions import Transaction, TransactionalWriter
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.trainer.steps.writer_mark import PLACE, WriterMark, has_written, newest_mark, read_marks

START_AGAIN = "start again: a new GroupStream goes on from what is on the log"
PATIENCE_S = 60.0
PAUSE_S = 0.2
GRACE_S = 1.0
"""Whoever fenced us leaves its mark within this, if it is a trainer; then we don't fence it in turn."""
REFUSED = (BlobUnavailable, NotAllowed, RecordTooLarge, TopicMismatch)
"""Trying again would end alike."""

log = logging.getLogger(__name__)


class StepWriter:
    """`start` fences every earlier trainer of the namespace, then `write` as often as there is something to say.

    After a write of which nobody can know whether it is on the log nothing more is written: a new start reads what is
    there. `patience_s` bounds the tries of one write; one try lasts no longer than a transaction may.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        patience_s: float = PATIENCE_S,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._connection, self._patience_s = connection, patience_s
        self._try_s = transaction_timeout_ms / 1000
        self._writer = TransactionalWriter(
            connection, connection.names.transactional_id("trainer"), transaction_timeout_ms=transaction_timeout_ms
        )
        self._life, self._writes = uuid4().hex, 0
        self._before: WriterMark | None = None
        self._held = self._fenced = self._uncertain = False
        self._transaction: Transaction | None = None
        self._failure: RolloutlogError | None = None
        self.turn = asyncio.Lock()

    async def start(self, run: RunRecord | None = None) -> RunRecord:
        """Initialise the transactional id, which fences whoever had it, and leave the first mark. What the run is by
        then, as far as it isn't known."""
        await self._writer.start()
        known = (await settled(self._connection, [PLACE], HIDDEN_S))[PLACE]
        run = await read_run(self._connection, run, known=known)
        self._before = newest_mark(run.cursors)
        self._held = True
        async with self.turn:
            await self.write([])
        return run

    async def close(self) -> None:
        """Close the producer; a transaction that is open is aborted."""
        await self._writer.close()

    def ensure_open(self) -> None:
        """Raise the failure after which nothing more is written."""
        if self._failure is not None:
            raise type(self._failure)(self._failure.message, self._failure.hint)

    async def write(self, events: Iterable[Outgoing]) -> list[Written]:
        """All of them, or none; where they lie, or nothing where the answer was lost. Readers see them a moment later.

        Raises Fenced where another trainer has started since, ClientFailed where nobody can know whether it is on the
        log, and from then on; anything else says that nothing was written, and then one may write again.
        """
        self.ensure_open()
        number, until = self._writes + 1, _clock() + self._patience_s
        after = None if self._before is None else (self._before.life, self._before.writes)
        records = [*events, WriterMark(self._life, number, after).event(now_ms())]
        written = await self._tried(number, records, until)
        self._writes = number
        return written

    async def _tried(self, number: int, records: Sequence[Outgoing], until: float) -> list[Written]:
        self._uncertain = False
        while True:
            try:
                if not self._held and await self._regain(number):
                    return []
                return await self._try(records)
            except (RolloutlogError, TimeoutError) as error:
                if self._failure is not None:
                    raise
                self._fenced = isinstance(error, Fenced)
                if isinstance(error, REFUSED) or _clock() >= until:
                    raise self._given_up(error) from error
                log.warning("a write of the trainer failed, it looks what is on the log: %s", str(error) or "no answer")
            except BaseException as error:
                self._given_up(error)
                raise
            await asyncio.sleep(PAUSE_S)

    async def _try(self, records: Sequence[Outgoing]) -> list[Written]:
        self._held, self._transaction = False, None
        try:
            async with asyncio.timeout(self._try_s), self._writer.transaction(abort=False) as transaction:
                self._transaction = transaction
                await transaction.send_all(records)
        finally:
            self._uncertain = self._transaction is not None and self._transaction.committing
        self._held, self._uncertain = True, False
        return transaction.written[:-1]  # but for the mark

    async def _regain(self, number: int) -> bool:
        """Take the pen up again, unless another trainer has it; whether the write with this number is on the log."""
        await self._writer.close()
        if self._fenced and self._writes:
            await asyncio.sleep(GRACE_S)
        async with asyncio.timeout(HIDDEN_S):
            if self._is_lost(marks := await read_marks(self._connection, whole=False)):
                return self._superseded(marks, number)
            await self._writer.start()  # what was open is committed or aborted when this returns
            if self._is_lost(marks := await read_marks(self._connection, whole=True)):
                return self._superseded(marks, number)
        self._held, found = True, has_written(marks, self._life, number) is True
        self._uncertain = False
        return found

    def _is_lost(self, marks: Sequence[WriterMark]) -> bool:
        """True where another trainer has left its mark after us. One that has fenced us and left none is fenced by us
        in turn, and ends: of two that start at once one remains."""
        newest = marks[-1] if marks else None
        return newest is not None and newest.life != self._life and (newest != self._before or self._writes > 0)

    def _superseded(self, marks: Sequence[WriterMark], number: int) -> bool:
        """Another trainer has the pen: True if our last write came before that, else it raises Fenced."""
        said = has_written(marks, self._life, number) if self._uncertain else False
        outcome = {
            True: "its last step was written before",
            False: "nothing of its last step was written",
            None: "whether its last step was written can't be known here any more, but `rolloutlog audit` counts it",
        }[said]
        namespace = self._connection.names.namespace
        self._failure = Fenced(f"another trainer has started in namespace {namespace}: this one stops, and {outcome}")
        if not said:
            raise self._failure
        return True

    def _given_up(self, error: BaseException) -> RolloutlogError:
        """The error to raise; where nobody can know what happened it is the end."""
        why = str(error) or f"no answer within {self._patience_s:g} s"
        if self._uncertain:
            self._failure = ClientFailed(
                f"whether the trainer's last write is on the log can't be known: {why}", START_AGAIN
            )
            return self._failure
        if isinstance(error, RolloutlogError) and isinstance(error, REFUSED):
            return error
        kind = type(error) if isinstance(error, RolloutlogError) else BrokerUnreachable
        return kind(f"nothing was written: {why}")


def _clock() -> float:
    return asyncio.get_running_loop().time()
