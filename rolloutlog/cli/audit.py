"""`rolloutlog audit`: prove from the topics that nothing was lost and nothing trained twice.

Guarantees: exits 0 when it holds, 1 when it is proven not to, 4 when an open transaction leaves it undecided. Leaves
out: mending.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, cast

import typer

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, print_json, print_table, progress
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

Masks = Annotated[bool, typer.Option("--masks", help="Make the masks of all trained groups again, and compare.")]


@with_settings
def audit(settings: Settings, masks: Masks = False, as_json: AsJson = False) -> None:
    """Count every rollout record once, and look for what must never be on the log."""
    from rolloutlog.consumers.audit.auditor import audit as run_audit
    from rolloutlog.consumers.audit.mask_check import check_masks

    settings = with_broker(settings)
    with progress("reading partitions") as step:
        found = asyncio.run(run_audit(settings, step))
    facts: dict[str, Any] = {}
    if masks:
        with progress("making masks again") as step:
            again = asyncio.run(check_masks(settings, step))
        found.violations += again.violations
        facts["masks"] = again.as_json()
    if as_json:
        print_json(found.as_json() | facts)
    else:
        print_audit(found.as_json())
        print_masks(facts.get("masks"))
    if found.ok is not True:
        raise typer.Exit(1 if found.ok is False else 4)


def print_masks(found: dict[str, Any] | None) -> None:
    """How many groups were compared."""
    if found is not None:
        left = "".join(f", {number} not ({reason})" for reason, number in found["unchecked"].items())
        line(f"the masks of {found['checked']} groups were made again{left}")


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
