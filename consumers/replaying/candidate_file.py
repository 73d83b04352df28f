"""The file of a frozen buffer's candidates, beside its manifest.

Guarantees: what is opened is what was written, by its digest, and is mapped, not read: memory doesn't grow with it.
Leaves out: what a row says (`rolloutlog.buffer.offline.candidate_table`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from rolloutlog.buffer.offline.candidate_table import CANDIDATE, Table
from rolloutlog.buffer.offline.manifest import CANDIDATES, CandidateFile, Manifest
from rolloutlog.contract.errors import ManifestInvalid


def write_candidates(folder: Path, table: Table) -> CandidateFile:
    """Write them; what the manifest says of the file."""
    path = folder / CANDIDATES
    np.save(path, table, allow_pickle=False)
    return CandidateFile(count=len(table), sha256=_digest(path))


def open_candidates(folder: Path, manifest: Manifest) -> Table:
    """The candidates of a manifest that lies in `folder`. Raises ManifestInvalid."""
    path, said = folder / manifest.candidates.file, manifest.candidates
    try:
        found = _digest(path)
        table: Table = np.load(path, mmap_mode="r" if said.count else None, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ManifestInvalid(f"{path} can't be read: {error}") from error
    if found != said.sha256 or table.dtype != CANDIDATE or table.shape != (said.count,):
        raise ManifestInvalid(f"{path} isn't the file of {said.count} candidates that its manifest names")
    return table


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
