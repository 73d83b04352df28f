"""`rolloutlog status`: how the run stands, on one screen.

Guarantees: looks only; what matters for training comes first, what was skipped last. Leaves out: history; the log has
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import counted, line, number_of, print_json, print_pairs, print_table
from rolloutlog.cli.screen.table import numbers_text
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS

UNFOLDED = "unknown: no buffer has folded anything here (`rolloutlog buffer run`)"
UNSEEN = "this user may not describe the run's consumer groups (`rolloutlog topics acls`)"
MINUTE, HOUR = 60, 3600
FEEDS_NOTHING = {
    "open-groups": "as many as may be",
    "own-share": "its share is full",
    "no-task": "its data has ended",
}
DERIVES_NOTHING = {
    "no-candidate": "no candidate is left",
    "ratio": "as many were derived as `buffer.ratio` allows",
    "open-groups": "as many derived groups are open as may be",
}


@with_settings
def status(settings: Settings, as_json: AsJson = False) -> None:
    """Print the current policy, groups, what was trained, dropped and expired lately, what holds feeders and draws up,
    rates, owners, lag and skips."""
    from rolloutlog.consumers.views.run_status import status as read_status
    from rolloutlog.producers.feeding.feeder_view import feeder_views

    async def read(reachable: Settings) -> dict[str, Any]:
        views = await feeder_views(reachable)
        return await read_status(reachable) | {"feeders": [asdict(view) for view in views]}

    found = asyncio.run(read(with_broker(settings)))
    if as_json:
        print_json(found)
    else:
        print_status(found)


def print_status(found: dict[str, Any]) -> None:
    """The training run, who works on it, the log, and what seeds nothing."""
    print_pairs(dict(_training(found)))
    line("")
    _print_owners(found["owners"])
    line("")
    _print_log(found)
    if found["skips"]:
        line("")
        print_table("rollouts that a derivation skipped, and why", ("derivation", "reason", "rollouts"), _skips(found))


def _training(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    run, recent, rates = found["run"], found["recent"], found["rates"]
    yield "run", f"{run['run']}, {run['partitions']} partitions, {run['batch_groups']} groups a step"
    if source := found["source"]:
        if source["offline"]:
            yield "trains", f"{source['namespace']} offline: {source['left']} offsets are left of pass {source['pass']}"
        else:
            left = f", {source['left']} offsets aren't folded yet" if source["left"] else ""
            yield "draws on", f"{source['namespace']} too{left}"
    yield "policy", _policy(found)
    yield "groups", _groups(found)
    if stands := _stands(found["trainer"]):
        yield "trainer", stands
    if found["trainer"] and found["trainer"]["lacks_weights"]:
        yield "weights", _lacks_weights(found)
    span = f"last {recent['seconds'] // MINUTE} min"
    yield "trained", f"{_trained(recent)}, {span}"
    yield "dropped", f"{counted(recent['dropped'])}, {span}"
    yield "expired", f"{sum(recent['expired'].values()) or 'no'} members, {span}"
    yield "rates", ", ".join(f"{topic} {rates[topic]}" for topic in INPUT_TOPICS) + " records in the last minute"
    for feeder in found.get("feeders", ()):
        yield f"feeds {feeder['env']}", _feeder(feeder)
    yield "seeds", counted(found["seeds"])
    if found["drawn"]:
        yield "derived by", counted(found["drawn"])
    yield "pool", f"{found['candidates']} candidates, those drawn included"
    if found["draw_lacks"]:
        yield "derives", _draw_lacks(found["draw_lacks"])


def _feeder(feeder: dict[str, Any]) -> str:
    """How much of what it may have open is, and why it feeds nothing."""
    room, lack = feeder["room"], feeder["lack"]
    said = f"{room['own_open']} of {room['own_most']} open, {room['open']} of {room['most']} of all feeders"
    return said if lack is None else f"{said}: {FEEDS_NOTHING[lack]}"


def _draw_lacks(lacks: dict[str, int]) -> str:
    return "nothing now: " + "; ".join(
        f"{DERIVES_NOTHING[lack]} on {number_of(number, 'partition')}" for lack, number in lacks.items()
    )


def _policy(found: dict[str, Any]) -> str:
    known = counted(found["policies"])
    if not found["policy"]:
        return f"none is current ({known})"
    return f"{':'.join(map(str, found['policy']))}, {_ago(found['policy_age_s'])} old ({known})"


def _groups(found: dict[str, Any]) -> str:
    groups = found["groups"]
    if groups is None:
        return UNFOLDED
    ends = f" ({counted(groups['ends'])})" if groups["ends"] else ""
    wanted = found["run"]["batch_groups"]
    return f"{groups['resolved']} resolved of {wanted} a step, {groups['open']} open, {groups['ended']} ended{ends}"


def _stands(trainer: dict[str, Any] | None) -> str:
    """How groups stood when the trainer closed its last step."""
    if not trainer or not trainer["groups"]:
        return ""
    stands = dict(trainer["groups"])
    again = stands.pop("asked_again", 0)
    return f"{counted(stands)}; {again} of them asked again for a member, after step {trainer['step']}"


def _lacks_weights(found: dict[str, Any]) -> str:
    since = f"since step {found['policy'][1]}" if found["policy"] else "ever"
    return f"none {since}: what workers sample now is too old for step {found['trainer']['step'] + 1}"


def _trained(recent: dict[str, Any]) -> str:
    if not recent["trained"]:
        return "no group"
    reward = "" if recent["reward"] is None else f"reward {recent['reward']:.3g} in "
    return f"{reward}{recent['trained']} groups up to step {recent['step']}, {recent['trainable_tokens']} tokens"


def _ago(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _print_owners(owners: list[dict[str, Any]] | None) -> None:
    if owners is None:
        line(UNSEEN)
    elif not owners:
        line("no buffer and no worker runs")
    else:
        rows = [(o["group"], numbers_text(o["partitions"]), o["client"], o["host"]) for o in owners]
        print_table("who owns which partitions", ("group", "partitions", "client", "host"), rows)


def _print_log(found: dict[str, Any]) -> None:
    columns = ("topic", "first", "end", "open transactions", "not folded")
    behind = {topic: sum(shard["lag"][topic] for shard in found["shards"]) for topic in INPUT_TOPICS}
    rows = [
        (row["topic"], row["first"], row["end"], row["open_transactions"] or None, behind.get(row["topic"]) or None)
        for row in found["topics"]
    ]
    print_table(None, columns, rows)
    late = [shard for shard in found["shards"] if any(shard["lag"].values())]
    if late:
        line("")
        rows = [(s["partition"], *(f"{s['offsets'][t]} ({s['lag'][t]})" for t in INPUT_TOPICS)) for s in late]
        print_table("shards that are behind: next offset, and by how many records", ("partition", *INPUT_TOPICS), rows)


def _skips(found: dict[str, Any]) -> list[tuple[str, str, int]]:
    listed = sorted(found["skips"].items(), key=lambda item: -item[1])
    return [(*name.split(": ", 1), number) for name, number in listed]
