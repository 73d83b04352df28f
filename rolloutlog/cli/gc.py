"""`rolloutlog gc`: delete what nobody needs any more, once it is counted for good.

Guarantees: says from where on each partition is kept, and for what; with `--dry-run` nothing is written or deleted.
Leaves out: what is needed (`rolloutlog.consumers.collecting`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, note, print_json, print_table, progress
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.consumers.collecting.collected import Collected


@with_settings
def gc(
    settings: Settings,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    checkpoints: Annotated[
        int, typer.Option("--checkpoints", min=1, help="Keep what the newest so many checkpoints need.")
    ] = 2,
    with_violations: Annotated[
        bool, typer.Option("--with-violations", help="Delete also where the audit fails; the seal keeps what it said.")
    ] = False,
    unpin: Annotated[
        str | None, typer.Option("--unpin", metavar="DIGEST", help="Let this frozen buffer hold nothing any more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete what no checkpoint, open group, source or frozen buffer needs, once the audit has sealed its counts."""
    from rolloutlog.consumers.collecting.gc_service import Options, collect
    from rolloutlog.consumers.collecting.gc_service import unpin as let_go

    if unpin is not None:
        if dry_run or with_violations:
            raise typer.BadParameter("--unpin deletes nothing: run gc again for that")
        digest = asyncio.run(let_go(with_broker(settings), unpin))
        print_json({"unpinned": digest}) if as_json else line(f"the manifest {digest} holds nothing any more")
        return
    with progress("counting partitions") as step:
        found = asyncio.run(collect(with_broker(settings), Options(dry_run, checkpoints, with_violations), step))
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)


def _print(found: Collected) -> None:
    rows = [(f"{each.topic}/{each.partition}", each.offset, each.deleted, each.why) for each in found.kept]
    print_table(None, ("partition", "kept from", "would be deleted" if found.dry_run else "deleted", "by"), rows)
    for why in found.ignored:
        line(("ignored", "yellow"), f": {why}")
    line(f"{found.sealed} records are sealed: the audit goes on from their counts")
    if found.dry_run:
        note("nothing was sealed or deleted: this was a dry run")
