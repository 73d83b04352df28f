"""Which lines need a stamp, and what it says (`rolloutlog.formats.foreign.export_stamp`).

Guarantees: every sound rollout becomes a line, whatever its record says. A line without a stamp is read back as it was,
with its group and members: it is the line that was imported, to the byte, says its group and environment itself, and
its whole group lies in order beside it. Leaves out: how a layout writes a line, and notes nested so deeply (254 levels)
that nothing can write them again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from rolloutlog.contract.ids import digest_of, imported_group_id
from rolloutlog.contract.record import value
from rolloutlog.formats.foreign.export_stamp import Stamp, slot_text, stamped
from rolloutlog.formats.writers.node_columns import Json
from rolloutlog.formats.writers.standing import StandingRollout

IMPORTER = "/importers/"


@dataclass(frozen=True, slots=True)
class LineIdentity:
    """What a line itself names: its run, its group and its environment."""

    run: Any = None
    group: Any = None
    env: Any = None


NOTHING = LineIdentity()
UNFIT = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
"""What foreign facts of another shape than the layout's make rendering raise."""
Render = Callable[[], tuple[Json, LineIdentity]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A layout: eras that are written as they were read, notes that it has a place for, and whether a line may have no
    keys but its own."""

    eras: frozenset[str]
    notes: frozenset[str]
    strict: bool

    def line(
        self, standing: StandingRollout, render: Render, bare: Callable[[], Json], copies: Sequence[Render] = ()
    ) -> bytes:
        """The line that `render` makes, with a stamp where it needs one. Of a record that says what the layout can't
        hold, which makes `render` raise, it is the `bare` one: the stamp has all of it. `copies` render what other
        files have of it, which is read as the same value."""
        try:
            rendered, said = render()
            text = _text(rendered)
            is_exact = self._is_native(standing) and (
                _was_read(standing, text) or any(_was_read(standing, _text(copy()[0])) for copy in copies)
            )
        except UNFIT:
            said, text, is_exact = NOTHING, orjson.dumps(bare()), False
        return self._finish(text, standing, said, is_exact)

    def _finish(self, text: bytes, standing: StandingRollout, said: LineIdentity, is_exact: bool) -> bytes:
        if is_exact and self._says_all(standing, said):
            return text
        slot, rollout = standing.rollout.slot, standing.rollout
        body = None if is_exact else base64.b64encode(value.encode(rollout.trajectory)).decode()
        stamp = Stamp(
            slot=slot_text(slot),
            status=rollout.status,
            step=standing.event.headers.step,
            notes=_writable(standing.notes),
            value=body,
        )
        return stamped(text, stamp, within=self.strict)

    def _is_native(self, standing: StandingRollout) -> bool:
        """True for a rollout that was read from this layout; a late reward is in the line, but not in the value."""
        source = standing.event.headers.source or ""
        return (
            "reward" not in standing.notes
            and source.startswith(IMPORTER)
            and source.removeprefix(IMPORTER) in self.eras
        )

    def _says_all(self, standing: StandingRollout, said: LineIdentity) -> bool:
        slot = standing.rollout.slot
        return (
            standing.is_ordered
            and standing.notes.keys() <= self.notes
            and standing.event.headers.step is not None
            and said.env == slot.env
            and said.run == slot.run
            and said.group is not None
            and slot.group == imported_group_id(said.run or "", said.group)
        )


def _text(rendered: Json) -> bytes:
    return orjson.dumps(rendered, option=orjson.OPT_SERIALIZE_NUMPY)


def _was_read(standing: StandingRollout, text: bytes) -> bool:
    """True where it is the line that was imported, to the byte: only that is known to be read as the same value."""
    return standing.event.headers.raw_digest == digest_of(text)


def _writable(notes: Json) -> Json:
    try:
        orjson.dumps(notes)
    except TypeError:
        return {name: fact for name, fact in notes.items() if not isinstance(fact, dict | list)}
    return notes
