"""`rolloutlog dead-letters`: what was rejected, and why; and trying it again, once that is mended.

Guarantees: prints reason, detail and handle of each; `derivation` is the reason of those that reject no record, but
what would be derived from it. Leaves out: what is tried again (`rolloutlog.consumers.retrying`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

import typer

from rolloutlog.cli.options import AsJson, Limit, Since, with_settings
from rolloutlog.cli.screen.output import line, note, print_json, print_table
from rolloutlog.cli.screen.shallow import shallow
from rolloutlog.cli.show import parse_place
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason

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


@app.command()
@with_settings
def retry(
    settings: Settings,
    place: Annotated[
        str | None, typer.Argument(metavar="[TOPIC/PARTITION/OFFSET]", help="Only this record; without it, all.")
    ] = None,
    reason: Annotated[RejectReason | None, typer.Option("--reason", help="Only those rejected for this.")] = None,
    topic: Annotated[Topic | None, typer.Option("--topic", help="Only records of this topic.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be published, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put rejected rollouts that are sound now on the log again, each once; exit code 1 where one still fails."""
    from rolloutlog.consumers.retrying.letter import LetterFilter
    from rolloutlog.consumers.retrying.outcome import Outcome
    from rolloutlog.consumers.retrying.retry_service import retry as try_again

    meant = None if place is None else "/".join(map(str, parse_place(place)))
    selection = LetterFilter(reason, topic, meant)
    found = [one.as_json() for one in asyncio.run(try_again(with_broker(settings), selection, dry_run=dry_run))]
    if as_json:
        for one in found:
            print_json(one)
    elif not found:
        note("no dead letter is meant")
    else:
        rows = [(one["place"], one["reason"], one["outcome"], one["why"]) for one in found]
        print_table(None, ("record", "rejected for", "outcome", "why"), rows)
        counts = Counter(one["outcome"] for one in found)
        line(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    if dry_run:
        note("nothing was written: this was a dry run")
    if any(one["outcome"] == Outcome.FAILS for one in found):
        raise typer.Exit(1)


def _where(letter: dict[str, Any]) -> str:
    """The record on the log, or the line of the file that was imported."""
    if "path" in letter:
        return f"{letter['path']}:{letter.get('line')}"
    place = f"{letter.get('topic')}/{letter.get('partition')}/{letter.get('offset')}"
    return f"{letter['namespace']}:{place}" if letter.get("namespace") else place
