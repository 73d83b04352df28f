"""`rolloutlog groups`: what a trainer would dispatch, with rewards, verdicts and masks.

Guarantees: rows are printed as they are read; more of them than a terminal shows at once are summed up by status and
reason, unless some are asked for. Leaves out: deciding (`rolloutlog.trainer`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import typer

from rolloutlog.cli.options import AsJson, Limit, with_settings
from rolloutlog.cli.screen.output import (
    note,
    note_spared,
    print_json,
    print_rows,
    print_table,
    screenful,
    short,
    terminal_width,
)
from rolloutlog.cli.screen.table import Table, numbers_text
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

Step = Annotated[int | None, typer.Option("--step", min=1, help="Train step to judge for.")]
Group = dict[str, Any]
COLUMNS = ("group", "status", "reason", "step", "members", "reward", "verdict", "trained", "mask")
AT_ONCE = 100
"""Groups that are laid out together."""


class GroupStatus(StrEnum):
    """How a group stands: waiting for members, to be drawn, of a later step, or ended."""

    OPEN = "open"
    READY = "ready"
    HELD = "held"
    TRAINED = "trained"
    DROPPED = "dropped"


@with_settings
def groups(
    settings: Settings,
    step: Step = None,
    status: Annotated[list[GroupStatus] | None, typer.Option("--status", help="Only these; may be repeated.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only groups whose id begins so.")] = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Print every group with rewards, verdicts and masks, as a trainer would dispatch it."""
    from rolloutlog.trainer.stream.group_view import groups_view

    rows = _chosen(groups_view(with_broker(settings), step, group or ""), status, limit)
    whole = as_json or status or group or limit
    asyncio.run(print_streamed(rows, as_json=as_json, at_most=None if whole else screenful()))


async def _chosen(
    rows: AsyncGenerator[Group], status: list[GroupStatus] | None, limit: int | None
) -> AsyncGenerator[Group]:
    printed = 0
    async with aclosing(rows):
        async for row in rows:
            if status is None or row["status"] in status:
                yield row
                printed += 1
                if printed == limit:
                    return


async def print_streamed(rows: AsyncGenerator[Group], *, as_json: bool, at_most: int | None) -> None:
    """Rows as they come; a summary in their place where they are more lines than `at_most`."""
    table, waiting, summary = _table(), list[Group](), Summary()
    lines = 0
    async with aclosing(rows):
        async for row in rows:
            if as_json:
                print_json(row)
                continue
            summary.add(row)
            lines += len(_lines(row))
            if at_most is None or lines < at_most:
                waiting.append(row)
            if at_most is None and len(waiting) >= AT_ONCE:
                _print_more(table, waiting)
    if at_most is not None and lines >= at_most:
        summary.print()
    elif waiting:
        _print_more(table, waiting)
        note_spared(table)
    elif not summary.groups and not as_json:
        note("no such group is on the log")


def print_groups(rows: Iterable[Group]) -> None:
    """A line per kind of member, groups apart by their first line."""
    table = _table()
    _print_more(table, list(rows))
    note_spared(table)


def _table() -> Table:
    return Table(COLUMNS, shrink=("group",), spare=("step",), width=terminal_width())


def _print_more(table: Table, rows: list[Group]) -> None:
    print_rows(table, [line for row in rows for line in _lines(row)])
    rows.clear()


def _lines(group: Group) -> list[tuple[Any, ...]]:
    """Members of whom the same is to be said stand on one line."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, member in enumerate(group["members"]):
        alike[_member(member)].append(number)
    head = (short(group["group"]), group["status"], group["reason"], group["step"])
    lines = [(numbers_text(numbers), *cells) for cells, numbers in alike.items()] or [()]
    return [(*(head if i == 0 else ("", "", "", "")), *cells) for i, cells in enumerate(lines)]


def _member(member: dict[str, Any]) -> tuple[Any, ...]:
    tokens, trained = member["response_tokens"], member["trainable_tokens"]
    runs = [(start, length) for start, length in member["mask_runs"] or ()]
    mask = "" if runs == [(0, tokens)] else " ".join(f"{start}+{length}" for start, length in runs)
    return (member["reward"], _verdict(member), f"{trained}/{tokens}" if tokens else "", mask)


def _verdict(member: dict[str, Any]) -> str:
    """The verdict, with the staleness of what isn't fresh; without one, how the member stands."""
    if member["verdict"] is None:
        return member["status"]
    stale = member["seq_staleness"]
    return f"{member['verdict']} {stale}" if stale else member["verdict"]


@dataclass(slots=True)
class Summary:
    """Groups by status and reason, with what they hold."""

    _of: dict[tuple[str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum))

    @property
    def groups(self) -> int:
        """How many were added."""
        return sum(one.groups for one in self._of.values())

    def add(self, group: Group) -> None:
        """Count one."""
        reason = "later step" if group["status"] == GroupStatus.HELD else group["reason"]
        self._of[group["status"], reason or ""].add(group["members"])

    def print(self) -> None:
        """As a table, in the order of a group's life."""
        columns = ("status", "reason", "groups", "members", "reward", "tokens", "trained")
        order = list(GroupStatus)
        listed = sorted(self._of.items(), key=lambda item: (order.index(GroupStatus(item[0][0])), -item[1].groups))
        print_table(None, columns, [(*key, *one.cells()) for key, one in listed])
        note("--limit, --status and --group print single groups, --json all of them")


@dataclass(slots=True)
class _Sum:
    groups: int = 0
    members: int = 0
    tokens: int = 0
    trained: int = 0
    reward: float = 0.0
    rewarded: int = 0

    def add(self, members: list[dict[str, Any]]) -> None:
        rewards = [member["reward"] for member in members if member["reward"] is not None]
        self.groups += 1
        self.members += len(members)
        self.tokens += sum(member["response_tokens"] for member in members)
        self.trained += sum(member["trainable_tokens"] for member in members)
        self.reward += sum(rewards)
        self.rewarded += len(rewards)

    def cells(self) -> Iterator[Any]:
        mean = round(self.reward / self.rewarded, 3) if self.rewarded else None
        yield from (self.groups, self.members, mean, self.tokens, self.trained)
