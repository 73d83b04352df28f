"""The page of typed errors and exit codes.

Guarantees: every error that is raised on purpose, with its exit code and hint. Leaves out: causes, which the message of
an error names, and `docs/when-something-is-wrong.md` explains.
"""

from __future__ import annotations

from rolloutlog.cli.exit_code import CLOSED_PIPE, INTERNAL
from rolloutlog.cli.reference import markdown as md
from rolloutlog.cli.serving import END_S
from rolloutlog.cli.signal_codes import INTERRUPTED, TERMINATED
from rolloutlog.contract import errors
from rolloutlog.contract.errors import MissingExtra, RolloutlogError

INTRODUCTION = """\
Whatever is raised on purpose derives from `rolloutlog.contract.errors.RolloutlogError`: its message says what is
wrong, its hint what to do. [When something is wrong](../when-something-is-wrong.md) has a heading for each."""

EXIT_CODES = {
    0: "good; also after SIGTERM, which drains",
    1: "a proven no, and nothing else",
    2: "bad use or settings, or a missing extra, which is named",
    3: "the broker can't be reached",
    4: "the run stopped it, or it can't be decided yet",
    INTERNAL: "an internal error: one line, with `--debug` the traceback",
    INTERRUPTED: "Ctrl-C",
    CLOSED_PIPE: "whoever read the output went away",
    TERMINATED: f"SIGTERM ended what isn't a service, or a service that hadn't drained {END_S:.0f} s later",
}


def page() -> str:
    """docs/reference/errors.md."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RolloutlogError)]
    rows = [(md.code(kind.__name__), kind.exit_code, kind.__doc__, _hint(kind)) for kind in kinds[1:]]
    return md.page(
        "Errors",
        INTRODUCTION,
        md.table(("error", "exit code", "means", "hint"), rows),
        "## Exit codes",
        md.table(("code", "means"), EXIT_CODES.items()),
        "With `--json` an error is one object on stderr: `error` (its class), `message` and `hint`.",
    )


def _hint(kind: type[RolloutlogError]) -> str:
    return 'the `pip install "rolloutlog[...]"` that is missing' if kind is MissingExtra else kind.default_hint
