"""Refusal: how an argument of a producer that can't be written becomes InvalidRecord.

Guarantees: whatever a foreign argument makes raise, a check's verdict or an object's own error, becomes InvalidRecord
with its reason, and its cause stays attached; the text of a foreign object is always one that JSON can hold, cut at
`MESSAGE_LIMIT` characters, whatever its own code raises. Leaves out: bad records that were read (`rejection`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected

MESSAGE_LIMIT = 4000
"""A message that holds a whole prompt or a page of HTML says nothing more at its end."""
LINE = 400
"""Letters of an error on one line; a record has more of them."""


def text_of(said: object) -> str:
    """`str` of an object."""
    try:
        text = str(said)[:MESSAGE_LIMIT]
    except BaseException as error:  # noqa: BLE001  (it may do anything, also leave the program)
        text = f"its text can't be had: {type_name(error)}"
    return text.encode("utf-8", "backslashreplace").decode()[:MESSAGE_LIMIT]


def type_name(of: object) -> str:
    """Name of an object's class, whatever its metaclass answers."""
    return text_of(type.__dict__["__name__"].__get__(type(of)))


def line_of(error: BaseException) -> str:
    """An error in one line of text that no terminal takes for more than text."""
    said = f"{type_name(error)}: {text_of(error)}"[:LINE]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in said)


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
