"""How far an import is, and what it did, per era and by reason.

Guarantees: every line read is counted once among imported, duplicates, skipped and rejected; each reason keeps the
first example that it had; bytes are those of the files as they lie on the disk. Leaves out: showing it (the command
line).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rolloutlog.producers.importing.files.occurrences import Occurrences

Phase = Literal["counting", "importing"]


@dataclass(slots=True, frozen=True)
class ImportProgress:
    """`counting` is pass one, `importing` pass two; `rows` are lines."""

    phase: Phase
    bytes: int
    total: int
    rows: int


Watch = Callable[[ImportProgress], None]


UNKNOWN = "unknown"
"""Era of a line that couldn't be read so far that its era was known."""


@dataclass(slots=True)
class EraCounts:
    """Lines of one era. `changed` are imported lines that supersede an earlier import by attempt."""

    read: int = 0
    imported: int = 0
    changed: int = 0
    annotations: int = 0
    duplicates: int = 0
    skipped: dict[str, Occurrences] = field(default_factory=dict[str, Occurrences])
    rejected: dict[str, Occurrences] = field(default_factory=dict[str, Occurrences])

    def skip(self, reason: str, where: str) -> None:
        """Count a line that is fine, and not imported."""
        self.skipped.setdefault(reason, Occurrences()).add(where)

    def reject(self, reason: str, where: str, why: str) -> None:
        """Count a line that went to the dead letters."""
        self.rejected.setdefault(reason, Occurrences()).add(where, why)


@dataclass(slots=True)
class Report:
    """The whole import. `singles` are rollouts whose group nobody knows, `cancelled` members that groups lack.

    `ambiguous` are names of tasks that stand for several prompts or environments, which are told apart all the same.
    """

    eras: dict[str, EraCounts] = field(default_factory=dict[str, EraCounts])
    files: int = 0
    passed: dict[str, Occurrences] = field(default_factory=dict[str, Occurrences])
    bytes: int = 0
    groups: int = 0
    singles: int = 0
    ambiguous: Occurrences = field(default_factory=Occurrences)
    cancelled: int = 0
    policies: int = 0
    seconds: float = 0.0
    dry_run: bool = False
    stopped: bool = False
    """At the first rejected line, as asked."""

    def era(self, name: str) -> EraCounts:
        """Counts of an era, made when first spoken of."""
        return self.eras.setdefault(name, EraCounts())

    def pass_over(self, path: str, reason: str) -> None:
        """Count a file that holds no rollouts."""
        self.passed.setdefault(reason, Occurrences()).add(path)

    @property
    def imported(self) -> int:
        """Rollouts written, in all eras."""
        return sum(era.imported for era in self.eras.values())

    @property
    def duplicates(self) -> int:
        """Lines that say what is on the log already, in all eras."""
        return sum(era.duplicates for era in self.eras.values())

    @property
    def rejected(self) -> int:
        """Lines rejected, in all eras and for all reasons."""
        return sum(counted.count for era in self.eras.values() for counted in era.rejected.values())

    @property
    def ok(self) -> bool:
        """True if nothing was rejected."""
        return self.rejected == 0

    def as_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return {**asdict(self), "ok": self.ok}
