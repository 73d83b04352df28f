"""`rolloutlog dead-letters`: what was rejected, and why.

Guarantees: prints reason, detail and handle of each; `derivation` is the reason of those that reject no record, but
what would be derived from it. Leaves out: trying again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import typer

from rolloutlog.cli.options import AsJson, Limit, Since, with_settings
from rolloutlog.cli.screen.output import note, print_json, print_table
from rolloutlog.cli.screen.shallow import shallow
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic

app = typer.Typer(no_args_is_help=True, help="What was rejected, records or derivations from them: reason and handle.")


@app.command("list")
@with_settings
def list_(
    settings: Settings,
    limit: Limit = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Print dead letters, oldest first."""
    from rolloutlog.consumers.views.tailing import tail_events

    async def work() -> list[dict[str, Any]]:
        events = tail_events(with_broker(settings), Topic.DEAD_LETTERS, since=since, limit=limit)
        return [
            shallow(event["value"]) | {"type": event["headers"].get("type"), "timestamp": event["timestamp"]}
            async for event in events
            if isinstance(event["value"], dict) and "reason" in event["value"]
        ]

    letters = asyncio.run(work())
    if as_json:
        for letter in letters:
            print_json(letter)
        return
    if not letters:
        note("nothing was rejected")
        return
    rows = [(letter["timestamp"], _where(letter), letter["reason"], letter.get("detail")) for letter in letters]
    print_table(None, ("time", "record", "reason", "detail"), rows)


def _where(letter: dict[str, Any]) -> str:
    """The record on the log, or the line of the file that was imported."""
    if "path" in letter:
        return f"{letter['path']}:{letter.get('line')}"
    return f"{letter.get('topic')}/{letter.get('partition')}/{letter.get('offset')}"
