"""Rejection: what every reader raises for a record that breaks the contract, at whatever depth it was noticed.

Guarantees: one reason of the closed set and a detail for people; a bad record is data, so this isn't an error of the
program that reads it. `HOSTILE` is what the boundaries catch. Leaves out: what is done about it (`dead_letters`, and
`InvalidRecord` for producers).
"""

from __future__ import annotations

import struct

from pydantic import ValidationError

from rolloutlog.contract.vocabulary import RESOLVES_SLOT, RejectReason

HOSTILE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)
"""What foreign JSON makes pure code raise that counts on other types, keys, sizes or depths. Each stage has one
boundary that catches these and tells which record it was; a fault of the machine passes."""


def fault_of(error: Exception) -> str:
    """What was raised, in one line."""
    said = " ".join(str(error).split())
    return said if type(error) is ValueError else f"{type(error).__name__}: {said}"


class Rejected(ValueError):
    """A record is bad: `reason` and `detail` go to the dead letters."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    @property
    def resolves(self) -> bool:
        """True where the reason lies in the value, so that the headers' slot ends as failed(rejected)."""
        return self.reason in RESOLVES_SLOT


class HeaderError(Rejected):
    """A header is missing, unknown or can't be read."""


class BadValue(Rejected):
    """The value can't be read as a rollout."""


def problem_of(error: ValidationError) -> str:
    """The first problem that pydantic found, in one line: where, and what."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
