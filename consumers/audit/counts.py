"""How many records count under each term of the accounting identity.

Guarantees: `accounted` is the sum of all terms, so an identity that doesn't hold shows. Leaves out: which term a record
counts under (`group_account`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from rolloutlog.contract.events.audit_sealed import SupersededBy, TermName

SIMPLE: tuple[str, ...] = get_args(TermName)
SUPERSEDED: tuple[str, ...] = get_args(SupersededBy)


class Term(NamedTuple):
    """A term, and the reason within it: superseded and dropped have one."""

    name: str
    reason: str | None = None


@dataclass(slots=True)
class Counts:
    """How many records count under each term."""

    produced: int = 0
    terms: Counter[str] = field(default_factory=Counter[str])
    superseded: Counter[str] = field(default_factory=Counter[str])
    dropped: Counter[str] = field(default_factory=Counter[str])

    def count(self, term: Term) -> None:
        """One more record."""
        self.produced += 1
        if term.reason is None:
            self.terms[term.name] += 1
        else:
            (self.superseded if term.name == "superseded" else self.dropped)[term.reason] += 1

    def add(self, other: Counts) -> None:
        """Add another partition's counts."""
        self.produced += other.produced
        self.terms += other.terms
        self.superseded += other.superseded
        self.dropped += other.dropped

    @property
    def accounted(self) -> int:
        """Records under any term; equals `produced`, or the fold is wrong."""
        return self.terms.total() + self.superseded.total() + self.dropped.total()

    def as_json(self) -> dict[str, object]:
        """`produced`, then each term: a number, or reason to number (design/groups#accounting)."""
        return {
            "produced": self.produced,
            **{name: self.terms[name] for name in SIMPLE},
            "superseded": {name: self.superseded[name] for name in SUPERSEDED},
            "dropped": dict(sorted(self.dropped.items())),
        }

    @classmethod
    def of(cls, terms: Mapping[Any, int], superseded: Mapping[Any, int], dropped: Mapping[Any, int]) -> Counts:
        """The counts that a seal holds."""
        found = cls(0, Counter(terms), Counter(superseded), Counter(dropped))
        found.produced = found.accounted
        return found
