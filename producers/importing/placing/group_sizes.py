"""How many rollouts a group of a run that is still written has, where nobody says it: as its finished steps show.

Guarantees: a step counts once the next one has begun; a guess that is too small loses nothing, since what a group has
no place for goes into a further one. Leaves out: what the run's configuration says (`evidence`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.foreign.recorded import TraceIdentity
from rolloutlog.producers.importing.files.found_files import SourceFile
from rolloutlog.producers.importing.files.lines import read_lines
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.parsing.normalise import count

LOOKED_AT = 2
"""Finished steps that are looked at, the newest ones: a group may lie in two."""


def finished_steps(files: Sequence[SourceFile]) -> list[int]:
    """The newest steps after which another one has begun."""
    steps = {file.origin.step for file in files if file.origin.step is not None}
    return sorted(steps)[:-1][-LOOKED_AT:]


def learned_size(files: Sequence[SourceFile], steps: Sequence[int]) -> int | None:
    """The most rollouts that a train group has in these steps; None where none is named."""
    groups = defaultdict[str, set[str]](set)
    for file in files:
        if file.origin.step in steps and file.origin.kind is not RunKind.EVAL:
            for identity in _identities(FileSpan(file.shown, file.origin)):
                groups[identity.group_id(identity.group or "")].add(identity.keys[0])
    return max(map(len, groups.values()), default=None)


def _identities(span: FileSpan) -> list[TraceIdentity]:
    """Those of lines that name trace and group."""
    found = [item for line in read_lines(span) if isinstance(item := count(line, span), TraceIdentity)]
    return [identity for identity in found if identity.group and identity.traces and identity.kind is RunKind.TRAIN]
