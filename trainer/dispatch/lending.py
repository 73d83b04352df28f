"""Batches on loan: drawn, and not yet on the log as trained (design/trainer#lending).

Guarantees: pure; batches are told in the order in which they were drawn, each once, and no step is skipped; one that
isn't told goes back with all that were drawn after it, step numbers too, and its groups then stand as the log says.
Leaves out: payloads, writing and waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from rolloutlog.trainer.dispatch.batch import Batch, drawn
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.pending_group import PendingGroup


class _State(Enum):
    AHEAD = auto()
    """Drawn before anybody asked for it."""
    LENT = auto()
    TELLING = auto()


@dataclass(slots=True)
class _Loan:
    batch: Batch
    groups: tuple[PendingGroup, ...]
    state: _State = _State.AHEAD


@dataclass(slots=True)
class Lending:
    """What is out, oldest first. `step` is the next train step to draw for; None where each group has its own."""

    sampler: Sampler
    step: int | None
    _loans: list[_Loan] = field(default_factory=list[_Loan])

    def draw(self, picks: Sequence[Pick], *, short: bool, now: int = 0) -> Batch:
        """Take these picks, made for `step`, as the next batch; nobody has it yet. `now` in milliseconds since 1970."""
        self.sampler.take(picks)
        batch = Batch(self.step, tuple(drawn(pick) for pick in picks), short=short, drawn_ms=now)
        groups = tuple(pick.pending for pick in picks)
        for pending in groups:
            pending.let_go()
        self._loans.append(_Loan(batch, groups))
        if self.step is not None:
            self.step += 1
        return batch

    def hand_out(self, batch: Batch) -> bool:
        """Lend it; False where it went back before."""
        loan = self._find(batch)
        if loan is not None:
            loan.state = _State.LENT
        return loan is not None

    def go_on(self) -> list[Batch]:
        """Whoever had batches asks for more, or has ended: what is lent and isn't told goes back, and is returned."""
        first = next((i for i, loan in enumerate(self._loans) if loan.state is _State.LENT), len(self._loans))
        return self._back(first)

    def give_back(self, batch: Batch) -> None:
        """Nobody wants it; nothing where it is told, or went back before."""
        loan = self._find(batch)
        if loan is not None and loan.state is not _State.TELLING:
            self._back(self._loans.index(loan))

    def begin(self, batch: Batch) -> None:
        """From now on it is told, and goes back only if nothing of it was written. Raises ValueError."""
        loan = self._find(batch)
        if loan is None:
            raise ValueError(self._why_not(batch))
        if loan.state is _State.TELLING:
            raise ValueError(f"{name_of(batch)} is being recorded already")
        loan.state = _State.TELLING

    def ensure_turn(self, batch: Batch) -> None:
        """Raise ValueError unless all that was drawn before it is on the log."""
        if self._find(batch) is None:
            raise ValueError(self._why_not(batch))
        first = self._loans[0].batch
        if first is not batch:
            raise ValueError(f"{name_of(first)} isn't recorded yet: batches are told in the order they were drawn in")

    def told(self, batch: Batch) -> None:
        """It is on the log: its groups have ended."""
        self.sampler.ended(pending for loan in self._loans if loan.batch is batch for pending in loan.groups)
        self._loans = [loan for loan in self._loans if loan.batch is not batch]
        for group in batch.groups:
            self.sampler.assemblies[group.partition].end(group.id)

    def failed(self, batch: Batch) -> None:
        """Nothing of it is on the log: it is lent as before, and may be told again."""
        loan = self._find(batch)
        if loan is not None:
            loan.state = _State.LENT

    @property
    def lent(self) -> list[Batch]:
        """What is out, oldest first."""
        return [loan.batch for loan in self._loans]

    def _back(self, first: int) -> list[Batch]:
        gone, self._loans = self._loans[first:], self._loans[:first]
        if gone:
            self.step = gone[0].batch.step
            self.sampler.give_back([pending for loan in gone for pending in loan.groups], self.step)
        return [loan.batch for loan in gone]

    def _find(self, batch: Batch) -> _Loan | None:
        return next((loan for loan in self._loans if loan.batch is batch), None)

    def _why_not(self, batch: Batch) -> str:
        ended = [group.id for group in batch.groups if group.id not in self.sampler.assemblies[group.partition].groups]
        if ended:
            return f"this batch was recorded before: {', '.join(ended)}"
        return f"{name_of(batch)} isn't lent any more: it went back when the stream went on without it"


def name_of(batch: Batch) -> str:
    """How a batch is called in messages."""
    return "this batch" if batch.step is None else f"the batch of step {batch.step}"
