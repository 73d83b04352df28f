"""`rolloutlog audit`: prove from the topics that nothing was lost and nothing trained twice.

Guarantees: exits 0 when it holds, 1 when it is proven not to, 4 when an open transaction leaves it undecided. Leaves
out: mending.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import typer

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, print_json, print_table, progress
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings


@with_settings
def audit(settings: Settings, as_json: AsJson = False) -> None:
    """Count every rollout record once, and look for what must never be on the log."""
    from rolloutlog.consumers.audit.auditor import audit as run_audit

    with progress("reading partitions") as step:
        found = asyncio.run(run_audit(with_broker(settings), step))
    if as_json:
        print_json(found.as_json())
    else:
        print_audit(found.as_json())
    if found.ok is not True:
        raise typer.Exit(1 if found.ok is False else 4)


def print_audit(found: dict[str, Any]) -> None:
    """The accounting as a table, then the verdict."""
    rows: list[tuple[str, int]] = []
    for term, value in found.items():
        if isinstance(value, dict):
            reasons = cast("dict[str, int]", value)
            rows += [(f"{term} ({reason})", number) for reason, number in reasons.items() if number]
        elif isinstance(value, int) and not isinstance(value, bool) and (value or term == "produced"):
            rows.append((term, value))
    print_table(None, ("records", "number"), rows)
    for violation in found["violations"]:
        place = f"{violation['partition']}/{violation['offset']}"
        line(("violation", "red"), f" {violation['kind']}: group {violation['group']} at rollouts/{place}")
    for place in found["open_transactions"]:
        line(("open transaction", "yellow"), f" on {place}: ask again in 10 s")
    for why in found["unusable_seals"]:
        line(("unusable", "yellow"), f": {why}")
    if found["sealed"]:
        line(f"{found['sealed']} of them are sealed")
    if found["ok"] is None:
        line(("undecided", "yellow"), ": a transaction is open, or what was deleted isn't counted")
    elif found["ok"]:
        line(("the audit holds", "green"), ": every record counts exactly once")
    else:
        line(("the audit fails", "red"))
