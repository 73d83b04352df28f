"""Refusal: what a producer is told when what it gave can't be written.

Guarantees: whatever a foreign argument makes raise, a check's verdict or an object's own error, becomes InvalidRecord
with its reason, and its cause stays attached. Leaves out: bad records that were read (`rejection`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.object_text import text_of, type_name
from rolloutlog.contract.rejection import Rejected
from rolloutlog.contract.vocabulary import RejectReason


@contextmanager
def refusing() -> Generator[None]:
    """Turn what is raised inside into InvalidRecord: foreign arrays and sequences may raise anything."""
    try:
        yield
    except InvalidRecord:
        raise
    except Rejected as rejected:
        raise InvalidRecord(rejected.reason, rejected.detail) from rejected
    except Exception as error:
        raise InvalidRecord(RejectReason.SHAPE, f"{type_name(error)}: {text_of(error)}") from error
