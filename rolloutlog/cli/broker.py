"""`rolloutlog broker`: Apache Kafka on this machine, for one data folder.

Guarantees: facts on stdout, progress on stderr; `status` ends with 1 when no broker runs. Leaves out: the broker itself
(`rolloutlog.broker`), which is loaded when a command runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.options import AsJson, DataDir
from rolloutlog.cli.screen.output import line, notes, print_json, print_pairs, print_table, spinner
from rolloutlog.contract.errors import BrokerUnreachable, NotFound, SettingsError

if TYPE_CHECKING:
    from rolloutlog.broker.broker_status import BrokerStatus
    from rolloutlog.broker.install.start_progress import OnProgress, StartProgress

MEBIBYTE = 2**20
STAGES = {
    "fetch": "fetching Kafka's jars",
    "format": "formatting data folders",
    "start": "starting Kafka",
    "ready": "ready",
}

app = typer.Typer(no_args_is_help=True, help="Apache Kafka on this machine: start, stop, look.")


@app.command()
def up(
    data_dir: DataDir = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="1, or 3 for a quorum. Kept from the first start.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="First port for clients. Kept from then on.")] = None,
    fast_start: Annotated[bool, typer.Option("--fast-start", help="Start with half the CPU, serve slower.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the broker of the data folder, or find the one that runs, and leave it running."""
    from rolloutlog.broker import up as start
    from rolloutlog.broker.broker_status import status as look

    with _progress() as on_progress:
        start(data_dir, nodes, port, fast_start=fast_start, on_progress=on_progress)
    if (found := look(data_dir)) is not None:
        _print_status(found, as_json)


@app.command()
def down(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Stop the broker of the data folder; its data stay."""
    from rolloutlog.broker import down as stop

    with spinner("stopping"):
        stopped = stop(data_dir)
    if as_json:
        print_json({"stopped": stopped})
    else:
        line("stopped" if stopped else "no broker was running")


@app.command()
def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print the broker of the data folder; ends with 1 when none runs."""
    from rolloutlog.broker.broker_status import status as look

    found = look(data_dir)
    if found is not None:
        _print_status(found, as_json)
    elif as_json:
        print_json({"running": False})
    else:
        line("no broker was ever started here")
    if found is None or not found.running:
        raise typer.Exit(1)


@app.command()
def env(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print the running broker's address for a shell: `eval "$(rolloutlog broker env)"`."""
    from rolloutlog.broker import find

    if (found := find(data_dir)) is None:
        raise BrokerUnreachable("no broker runs in this data folder")
    if as_json:
        print_json({"bootstrap_servers": found.bootstrap_servers})
    else:
        line(f"export ROLLOUTLOG_BOOTSTRAP_SERVERS={found.bootstrap_servers}")


@app.command()
def logs(
    data_dir: DataDir = None,
    lines: Annotated[int | None, typer.Option("--lines", min=0, help="Only the last ones of each log.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they grow.")] = False,
) -> None:
    """Print what the broker wrote since its last start."""
    from rolloutlog.broker import logs as log_files
    from rolloutlog.broker.process import log_tail as tail

    paths = log_files(data_dir)
    if not paths:
        raise NotFound("no broker was ever started in this data folder", "start one with `rolloutlog broker up`")
    prefixes = {path: f"{path.parent.name}  " if len(paths) > 2 else "" for path in paths}
    for path, text in tail.read(paths, lines, follow):
        line(prefixes[path] + text)


@app.command()
def fetch(
    start_cache: Annotated[
        bool, typer.Option("--start-cache", help="And have Java prepare starts, which then take half the CPU (70 MB).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch Kafka's jars into this user's cache, so that later starts need no network."""
    from rolloutlog.broker import fetch as fetch_jars
    from rolloutlog.broker.training_run import make_start_cache

    with _progress() as on_progress:
        jars = fetch_jars(on_progress)
        cache = make_start_cache(on_progress) if start_cache else None
    found = {"jars": len(jars), "bytes": sum(jar.stat().st_size for jar in jars), "folder": str(jars[0].parent)}
    found |= {} if cache is None else {"start_cache": str(cache)}
    print_json(found) if as_json else print_pairs(found)


@app.command()
def reset(
    data_dir: DataDir = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask. Every record is lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the stopped broker of the data folder, with every record in it."""
    from rolloutlog.broker import reset as remove
    from rolloutlog.broker.broker_status import status as look

    found = look(data_dir)
    asks = found is not None and not found.running and not yes
    if found and asks and not typer.confirm(f"remove the broker in {found.data_dir}, with all its records?", err=True):
        raise SettingsError("nothing was removed", "answer y, or give --yes")
    removed = remove(data_dir)
    if as_json:
        print_json({"removed": removed})
    else:
        line("removed" if removed else "there was no broker")


def _print_status(found: BrokerStatus, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(found) | {"data_dir": str(found.data_dir)})
        return
    life = f"ends with process {found.owner}" if found.owner else "until `rolloutlog broker down`"
    print_pairs(
        {
            "broker": f"running, {life}" if found.running else "stopped",
            "address": found.bootstrap_servers,
            "cluster": found.cluster_id,
            "data": found.data_dir,
        }
    )
    columns = ("node", "port", "pid", "MiB", "state")
    print_table(
        None, columns, [(n.id, n.port, n.pid, _mebibytes(n.memory), _state(n.running, n.why)) for n in found.nodes]
    )


def _state(running: bool, why: str | None) -> str:
    if running:
        return "running"
    return f"died: {why}" if why else "stopped"


def _mebibytes(size: int | None) -> int | None:
    return None if size is None else size // MEBIBYTE


@contextmanager
def _progress() -> Generator[OnProgress]:
    """A bar on stderr, a task a stage."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=notes, transient=True) as bars:
        tasks = {stage: bars.add_task(text, visible=False) for stage, text in STAGES.items()}

        def show(progress: StartProgress) -> None:
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total, visible=True)

        yield show
