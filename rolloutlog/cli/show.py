"""`rolloutlog show`: one event of the log, headers and value.

Guarantees: a bad record is printed like any other, with what is wrong with it. Leaves out: many events (`tail`).
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.brief import NODE_COLUMNS, brief, is_rollout, node_rows, one_line_each
from rolloutlog.cli.screen.output import line, note, print_indented, print_json, print_pairs, print_table
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic

LEADING = ("type", "reward", "status", "stop_condition", "oldest_policy", "newest_policy")
"""Headers that people look for first."""


@with_settings
def show(
    settings: Settings,
    place: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="Such as rollouts/3/1204.")],
    as_json: AsJson = False,
) -> None:
    """Print one event: headers and value, whatever its encoding; long values shortened, but with --json."""
    from rolloutlog.consumers.views.event_view import event_json
    from rolloutlog.kafka.client.connection import connect
    from rolloutlog.kafka.read.reading import read_one

    topic, partition, offset = parse_place(place)

    async def work() -> dict[str, Any]:
        connection = await connect(with_broker(settings), Role.PEOPLE, [topic])
        return event_json(await read_one(connection, topic, partition, offset))

    event = asyncio.run(work())
    if as_json:
        print_json(event)
    else:
        _print_event(event)


def parse_place(place: str) -> tuple[Topic, int, int]:
    """Topic, partition and offset; raises SettingsError."""
    try:
        topic, partition, offset = place.split("/")[:3]
        return Topic(topic), int(partition), int(offset)
    except ValueError as error:
        raise SettingsError(
            f"{place!r} isn't TOPIC/PARTITION/OFFSET", f"topics are {', '.join(Topic)}; for example rollouts/3/1204"
        ) from error


def _print_event(event: dict[str, Any]) -> None:
    headers, place = event["headers"], f"{event['topic']}/{event['partition']}/{event['offset']}"
    first = {"place": place, "size": event["size"], "timestamp": event["timestamp"], "key": event["key"]}
    print_pairs(first | {name: headers[name] for name in LEADING if name in headers})
    line("")
    print_pairs({name: text for name, text in headers.items() if name not in LEADING})
    line("")
    if "problem" in event:
        line(f"the value can't be read: {event['problem']}")
    elif event["value"] is None:
        line("the value is null")
    elif is_rollout(event["value"]):
        _print_rollout(event["value"])
    else:
        print_indented(brief(event["value"]))


def _print_rollout(value: dict[str, Any]) -> None:
    """A row a node, then a line for all else that the record says."""
    print_table(None, NODE_COLUMNS, node_rows(value), shrink=("log-probs", "token ids"), spare=("parent",))
    line("")
    record = {name: fact for name, fact in value["record"].items() if name != "nodes"}
    print_pairs(one_line_each(record | {"segments": value["segments"], "columns": value["columns"]}))
    note("--json prints everything")
