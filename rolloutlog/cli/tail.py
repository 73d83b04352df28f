"""`rolloutlog tail`: the events of a topic, a line each.

Guarantees: a bad record is printed like any other; with `--follow` events are printed as they come. Leaves out: values
(`show`).
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from rolloutlog.cli.options import AsJson, Limit, Since, with_settings
from rolloutlog.cli.screen.output import line, print_each, print_json
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic


@with_settings
def tail(
    settings: Settings,
    topic: Annotated[Topic, typer.Argument(help="Which topic.")],
    limit: Limit = None,
    start: Annotated[int, typer.Option("--from", min=0, help="First offset on each partition.")] = 0,
    since: Since = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with events as they come.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the events of a topic, oldest first within each partition, a line each."""
    from rolloutlog.consumers.views.tailing import tail_events

    events = tail_events(with_broker(settings), topic, start=start, since=since, limit=limit, follow=follow)
    asyncio.run(print_each(events, print_json if as_json else lambda event: line(_line(event))))


def _line(event: dict[str, Any]) -> str:
    headers = event["headers"]
    about = headers.get("subject") or event["key"] or ""
    extra = [f"{k}={headers[k]}" for k in ("reward", "member", "attempt", "reason", "step", "policy") if k in headers]
    place = f"{event['partition']}/{event['offset']}"
    return f"{place:>10}  {event['timestamp']}  {headers.get('type', '?'):<18} {about}  {' '.join(extra)}".rstrip()
