"""How often something was met in the files of a source, and where first.

Guarantees: memory doesn't grow with the count. Leaves out: what it was.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_WHY = 200


@dataclass(slots=True)
class Occurrences:
    """How often, where first, as `path:line`, and what was wrong there."""

    count: int = 0
    first: str = ""
    why: str = ""

    def add(self, where: str, why: str = "") -> None:
        """Count one more."""
        self.count += 1
        if not self.first:
            self.first, self.why = where, why[:LONGEST_WHY]
