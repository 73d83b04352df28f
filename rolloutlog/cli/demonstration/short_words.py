"""The tasks of the demo: reversal and lookup of words of three letters, which two cores learn in a few thousand groups.

Guarantees: they are the environments that ship with rolloutlog. One lookup in ten waits for its tool, so that
weights change in the middle of rollouts: what was sampled before is too old for some, which is masked. Leaves out:
longer words, which those of the same names that are installed have.
"""

from __future__ import annotations

from rolloutlog.producers.environments.lookup import Lookup
from rolloutlog.producers.environments.reversal import Reversal

LETTERS, SLOW, MOST_S = 3, 0.1, 10.0
reversal, lookup = Reversal(LETTERS), Lookup(LETTERS, SLOW, MOST_S)
