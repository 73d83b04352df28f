"""`rolloutlog candidates` and `rolloutlog seeds list`: what could be derived, and what was emitted.

Guarantees: both print the same facts (design/commands#facts); an empty answer says so on stderr, and which rule emptied
it. Leaves out: emitting, which the buffer service does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import typer

from rolloutlog.cli.options import AsJson, Limit, with_settings
from rolloutlog.cli.screen.output import json_text, note, print_json, print_table, short
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Seeds: the queue of work for rollout workers.")
LONGEST = 60
SHRINK, SPARE = ("source",), ("policy", "depth", "tokens")
"""Columns that a narrow terminal cuts, and those that it doesn't show."""


@app.callback()
def _seeds() -> None:
    """Keep `list` a command of its own, though it is the only one."""


@app.command("list")
@with_settings
def list_(settings: Settings, limit: Limit = None, as_json: AsJson = False) -> None:
    """Print the seeds on the log, by partition and offset."""
    from rolloutlog.consumers.views.seed_view import seed_rows

    rows = asyncio.run(_first(seed_rows(with_broker(settings)), limit))
    _print(rows, as_json, "no seed was emitted")


@with_settings
def candidates(
    settings: Settings,
    derivation: Annotated[str | None, typer.Option("--derivation", help="Only of this derivation.")] = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Print what could be derived now, in the order in which draws rank it."""
    from rolloutlog.consumers.views.seed_view import Emptiness, candidate_rows

    why = Emptiness()
    rows = asyncio.run(_first(candidate_rows(with_broker(settings), derivation, why), limit))
    _print(rows, as_json, f"no candidate: {why}")


def print_seeds(rows: list[dict[str, Any]]) -> None:
    """A line per seed or candidate; a seed also with its place and group."""
    columns = ("kind", "anchor", "node", "source", "env", "depth", "reward", "policy", "tokens", "resumes after")
    places = [(f"{row['partition']}/{row['offset']}", short(row["group"])) for row in rows if "offset" in row]
    if places:
        cells = [(*place, *_cells(row)) for place, row in zip(places, rows, strict=True)]
        print_table(None, ("seed", "group", *columns), cells, shrink=("group", *SHRINK), spare=(*SPARE, "group"))
    else:
        print_table(None, columns, [_cells(row) for row in rows], shrink=SHRINK, spare=SPARE)


def _print(rows: list[dict[str, Any]], as_json: bool, none: str) -> None:
    if not rows:
        note(none)
    elif as_json:
        for row in rows:
            print_json(row)
    else:
        print_seeds(rows)


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    policy = ":".join(map(str, row["policy"])) if row["policy"] else None
    source = short(row["source"] or "")
    return (
        row["kind"],
        row["anchor"],
        row["node"],
        source,
        row["env"],
        row["depth"],
        row["reward"],
        policy,
        row["tokens"],
        _last(row["messages"]),
    )


def _last(messages: list[dict[str, Any]] | None) -> str:
    """The message at which the seed resumes, short."""
    if not messages:
        return ""
    text = " ".join(_text(messages[-1].get("content")).split())
    return f"{_text(messages[-1].get('role'))}: {text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'}"


def _text(content: Any) -> str:
    """What somebody else's seed says, which needn't be text."""
    return content if isinstance(content, str) else json_text(content) if content else ""


async def _first(rows: AsyncGenerator[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with aclosing(rows):
        async for row in rows:
            found.append(row)
            if len(found) == limit:
                break
    return found
