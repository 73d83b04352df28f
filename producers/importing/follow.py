"""Import of a run that is still written: what comes is taken as it comes, and goes on where it was
(design/eras#following).

Guarantees: a cursor moves in the transaction that writes what was read up to it, so nothing is lost or doubled by a
kill; no line is taken before it has its end; a second follower of the same paths fences the first. Leaves out: the end
of a source: members that a group lacks may still come, so none is cancelled; where neither the user nor a configuration
nor a finished step says how large a named group is, it asks, since it can't be seen.
"""

from __future__ import annotations

import asyncio
import glob
import os
import time
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from rolloutlog.contract.errors import MissingExtra, SourceUnreadable
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.producers.importing.files.found_files import Finder, SourceFile, Sources
from rolloutlog.producers.importing.report import ImportProgress, Report, Watch
from rolloutlog.producers.importing.source_follower import Follower
from rolloutlog.producers.open_run import open_run

LOOK_AGAIN_MS = 5000
"""A file system that tells nothing of changes (NFS) is looked at so often."""
DEBOUNCE_MS = 100


async def follow_runs(
    settings: Settings,
    paths: Sequence[str | Path],
    *,
    group_size: int | None = None,
    env: str | None = None,
    stop: asyncio.Event | None = None,
    watch: Watch | None = None,
) -> Report:
    """Import what is there and what comes, until `stop` is set. `group_size` and `env` as in `import_runs`.

    Raises SettingsError where nothing says how large a group is, Fenced when another follower of the same paths starts,
    RunMismatch, BrokerUnreachable, MissingExtra (without watchfiles or zstandard), SourceUnreadable where a path isn't
    there.
    """
    started, ending = time.monotonic(), stop or asyncio.Event()
    for module in ("watchfiles", "zstandard"):
        if find_spec(module) is None:
            raise MissingExtra("import", module)
    roots = _roots(paths)
    run = await open_run(settings, Role.IMPORTERS)
    name = _name(paths)
    writer = TransactionalWriter(run.connection, run.connection.names.transactional_id(name), run.blobs)
    async with writer, PayloadReader(run.connection) as payloads:
        follower = await Follower.restored(name, run, writer, payloads, group_size)
        finder = Finder(env)
        for file in (await asyncio.to_thread(_sources, finder, paths)).files:
            await asyncio.to_thread(follower.count_passed, file)
        async for _ in _wakes(roots, ending):
            while await _round(follower, await asyncio.to_thread(_sources, finder, paths), ending, watch):
                continue
    report = follower.intake.report
    report.groups = len(follower.intake.census.groups) - follower.intake.census.singles
    report.singles = follower.intake.census.singles
    report.seconds = time.monotonic() - started
    return report


def _name(paths: Sequence[str | Path]) -> str:
    """Of cursors and transactional id: the same for the same paths."""
    return f"import.{id_of('source', *sorted(os.path.abspath(path) for path in paths))}"


async def _round(follower: Follower, sources: Sources, ending: asyncio.Event, watch: Watch | None) -> bool:
    """Take all that is new, file by file in order; False where nothing was."""
    found = False
    follower.intake.report.files = len(sources.files)
    for path, why in sources.unreadable:
        follower.refuse(path, why)
    await follower.learn(sources.files)
    for file in sources.files:
        while not ending.is_set() and await _took(follower, file):
            found = True
            if watch is not None:
                watch(_progress(follower))
    return found


async def _took(follower: Follower, file: SourceFile) -> bool:
    try:
        return await follower.take_new(file)
    except FileNotFoundError:
        return False  # replaced or compressed since the folder was listed: the next look finds it


def _progress(follower: Follower) -> ImportProgress:
    done = sum(cursor.byte for cursor in follower.cursors.values())
    rows = sum(era.read for era in follower.intake.report.eras.values())
    return ImportProgress("importing", done, done, rows)


def _sources(finder: Finder, paths: Sequence[str | Path]) -> Sources:
    try:
        return finder.find(paths)
    except SourceUnreadable:
        return Sources()  # nothing lies there yet


def _roots(paths: Sequence[str | Path]) -> list[Path]:
    """Folders to watch. Raises SourceUnreadable where there is none."""
    roots: list[Path] = []
    for path in map(str, paths):
        root = Path(path)
        while glob.has_magic(str(root)) or (root.suffix and not root.is_dir()):
            root = root.parent
        if not root.is_dir():
            raise SourceUnreadable(f"{root} isn't a folder")
        roots.append(root)
    return roots


async def _wakes(roots: Sequence[Path], ending: asyncio.Event) -> AsyncIterator[None]:
    """At once, then whenever something changed below the roots or some time has passed, until the end."""
    import watchfiles

    yield
    changes: AsyncIterator[object] = cast("Any", watchfiles).awatch(
        *roots,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        stop_event=ending,
        rust_timeout=LOOK_AGAIN_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    async for _ in changes:
        yield
