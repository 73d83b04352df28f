"""Which numbers are rewards: those of which float32, the trainer's type, has a finite form.

Guarantees: one rule for records, agents and annotations; advantages of legal rewards are finite. Leaves out: what a
reward means.
"""

from __future__ import annotations

from typing import Any

LARGEST = 3.4028234663852886e38
"""The largest float32."""
REWARD = "a number that float32 can hold, or null"


def is_reward(said: Any) -> bool:
    """True for such a number, and for None: pending."""
    if said is None:
        return True
    return isinstance(said, int | float) and not isinstance(said, bool) and -LARGEST <= said <= LARGEST
