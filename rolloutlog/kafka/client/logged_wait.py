"""A wait that is logged: a line when it begins, one a minute or when it is of another kind, and one when it is over
(design/exactly-once#waiting).

Guarantees: a short wait, below `after_s`, says nothing, and kinds that alternate more often than that say no more than
one that lasts. Leaves out: waiting, and for how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

EVERY_S = 60.0


@dataclass(slots=True)
class LoggedWait:
    """Call `goes_on` again and again while it lasts; `log` takes the lines."""

    log: Callable[[str], None]
    after_s: float = 0.0
    every_s: float = EVERY_S
    _since: float | None = None
    _logged: float | None = None
    _kind: str | None = None

    def goes_on(self, why: str, kind: str | None = None) -> None:
        """It begins, or lasts; `kind` is what it waits for, in a word."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        lasted = now - self._since
        if self._logged is None and lasted >= self.after_s:
            self._log_at(f"waiting: {why}", now)
        elif self._logged is not None and now - self._logged >= (self.every_s if kind == self._kind else self.after_s):
            self._log_at(f"still waiting after {lasted:.0f} s: {why}", now)
        else:
            return
        self._kind = kind

    def over(self, how: str) -> None:
        """What was waited for is there; logged only where the wait was."""
        if self._since is not None and self._logged is not None:
            self.log(f"{how} after {time.monotonic() - self._since:.0f} s")
        self._since = self._logged = None

    def _log_at(self, line: str, now: float) -> None:
        self._logged = now
        self.log(line)
