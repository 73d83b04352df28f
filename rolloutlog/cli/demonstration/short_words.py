"""The tasks of the demo: reversal and lookup of words of three letters, which two cores learn in a few thousand groups.

Guarantees: they are the environments that ship with rolloutlog, and nothing else. Leaves out: longer words, which those
of the same names that are installed have.
"""

from __future__ import annotations

from rolloutlog.producers.environments.lookup import Lookup
from rolloutlog.producers.environments.reversal import Reversal

LETTERS = 3
reversal, lookup = Reversal(LETTERS), Lookup(LETTERS)
