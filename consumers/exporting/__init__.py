"""Rollouts off the log and back into files that other tools read: episodes, July's records with their index, Parquet.

Guarantees: of each member the record that stands is written once, with what was said of it later; the output folder
appears when it is complete. Leaves out: frozen buffers (manifests), and putting files on the log (the importers).
"""

from __future__ import annotations
