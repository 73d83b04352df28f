"""The one boundary between a foreign line and the import: whatever a line makes code raise is a rejection of that line.

Guarantees: no line ends an import, however it is nested, typed or long. Leaves out: failures that aren't a line's (a
full disk, no memory, settings), which end the import as they should.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rolloutlog.contract.errors import RolloutlogError
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.vocabulary import RejectReason

P = ParamSpec("P")
T = TypeVar("T")


def read_or_reject(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Rejected:
    """What `read` makes of a line, or why the line is rejected."""
    try:
        return read(*args, **kwargs)
    except Rejected as rejected:
        return rejected
    except (MemoryError, OSError, RolloutlogError):
        raise
    except RecursionError:
        return Rejected(RejectReason.SHAPE, "nested too deeply")
    except Exception as error:  # noqa: BLE001
        return Rejected(RejectReason.SHAPE, f"{type(error).__name__}: {error}")
