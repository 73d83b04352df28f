"""Which traces there are, and which members of which groups they are.

Guarantees: a trace is counted once, however many copies there are; what is on the log keeps its place, the others take
free ones in the order of their first appearance. Members of a group that the source doesn't name agree in kind,
environment, task and prompt, and stand in one run or file; a task's name that several prompts or environments share is
told. Only ids are kept. Leaves out: what the traces hold, and reading the log (`known`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.foreign.recorded import TraceIdentity
from rolloutlog.producers.importing.files.occurrences import Occurrences
from rolloutlog.producers.importing.files.source_files import SourceFiles
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.placing.chain import Chain, Free, first_group
from rolloutlog.producers.importing.placing.known import Known, KnownGroup


class GroupCount(NamedTuple):
    """A group that the source has members of; `is_single`: nobody knows which others are of it."""

    size: int
    kind: RunKind
    is_single: bool


class Place(NamedTuple):
    """Where a trace belongs.

    `is_part`: the line holds only some traces of an episode that was counted whole.
    """

    key: str
    group: str
    size: int
    member: int
    is_part: bool
    scored: bool
    """False if no copy of it was scored, as far as is known."""


@dataclass(slots=True)
class Census:
    """Traces and groups of a source. `group_size` is the user's word, for groups whose size nobody recorded.

    `whole`: all traces are counted before the first is placed, so that a group's own rows are evidence of its size.
    """

    group_size: int | None = None
    whole: bool = True
    learned: int = 0
    """Size of groups as finished steps show it; 0 where none does."""
    groups: dict[str, GroupCount] = field(default_factory=dict[str, GroupCount])
    files: SourceFiles = field(default_factory=SourceFiles)
    ambiguous: Occurrences = field(default_factory=Occurrences)
    """Names of tasks that stand for several prompts or environments."""
    _chains: dict[str, Chain] = field(default_factory=dict[str, Chain])
    _chain_of: dict[str, str] = field(default_factory=dict[str, str])
    _episodes: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Key of the main trace and number of traces, by the key of each trace of an episode that has several."""
    _unscored: set[str] = field(default_factory=set[str])
    _waiting: list[tuple[str, TraceIdentity]] = field(default_factory=list[tuple[str, TraceIdentity]])
    """Lines that wait until it is known which file is which."""
    _wanted: set[str] = field(default_factory=set[str])
    """Marks and keys of such lines."""
    _asked: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """What a task's name stands for; None once that was told to be more than one thing."""

    def add(self, identity: TraceIdentity, span: FileSpan) -> None:
        """Count a line's trace, unless it was counted."""
        if identity.traces and not identity.is_of_a_file:
            self._add(identity, span.path)
            return
        self.see(identity, span)
        self._waiting.append((span.path, identity))
        self._wanted.update((identity.mark, *identity.keys))

    def see(self, identity: TraceIdentity, span: FileSpan) -> None:
        """Count a line of a file, where that is needed to know which file it is, or which line."""
        if not identity.traces or identity.is_of_a_file:
            self.files.count(span, identity.mark)

    def number(self, known: Known) -> None:
        """Fix sizes and members: what the log says stays, the rest fills up."""
        self.settle(known)
        for chain in self._chains.values():
            chain.place(
                (key for key, free in chain.members.items() if not free and key not in known.rollouts), known.groups
            )
            for key, free in chain.members.items():
                there = known.rollouts.get(key)
                self._touch(chain, there.group if there else _of(free).group, there.size if there else _of(free).size)

    def settle(self, known: Known) -> None:
        """Count what waited to know which file is which."""
        self.files.settle(known.files)
        for path in {path: None for path, _ in self._waiting}:
            self.files.begin(path)
        for path, identity in self._waiting:
            self._add(self.identified(identity, path), path)
        self._waiting.clear()

    def identified(self, identity: TraceIdentity, path: str) -> TraceIdentity:
        """A line as one of its file: with the trace that it is, and the file that its group is gathered in."""
        file = self.files.of(path)
        if file is None or (identity.traces and not identity.is_of_a_file):
            return identity
        scope = identity.scope or file.name
        traces = identity.traces or (id_of("line", scope, identity.mark, self.files.next(path, identity.mark)),)
        return replace(identity, traces=traces, scope=scope, file=str(file) if identity.is_of_a_file else None)

    def place(self, identity: TraceIdentity, path: str, known: Known) -> Place:
        """Count a trace and place it at once. Raises SettingsError where it can't be said how large its group is."""
        self._add(identity, path)
        key = self._main(identity) or ""
        chain = self._chains[self._chain_of[key]]
        if key not in known.rollouts and not chain.members[key]:
            if not chain.size and not _has_room(known.groups.get(chain.base)):
                raise SettingsError(
                    f"nothing says how many rollouts a group of {path} has, and what is still written can't show it",
                    "give --group-size, follow once a step is finished, or import what is there without --follow",
                )
            chain.place([key], known.groups)
        found = self.place_of(identity, known)
        if found is None:
            raise KeyError(key)
        self._touch(chain, found.group, found.size)
        return found

    def place_of(self, identity: TraceIdentity, known: Known) -> Place | None:
        """Where a line's rollout belongs, once members are numbered; None for one that wasn't counted."""
        key = self._main(identity)
        if key is None:
            return None
        whole = self._episodes[key][1] if key in self._episodes else 1
        is_part, scored = len(identity.traces) < whole, key not in self._unscored
        if (there := known.rollouts.get(key)) is not None:
            return Place(key, there.group, there.size, there.member, is_part, scored)
        return Place(key, *_of(self._chains[self._chain_of[key]].members[key]), is_part, scored)

    def wants(self, group: str, key: str, mark: str) -> bool:
        """True if a group, a trace of this key, or a line of this mark was counted."""
        is_counted = key in self._chain_of or group in self._chains or first_group(group) in self._chains
        return is_counted or not self._wanted.isdisjoint((key, mark))

    @property
    def singles(self) -> int:
        """Rollouts on their own."""
        return sum(group.is_single for group in self.groups.values())

    def _touch(self, chain: Chain, group: str, size: int) -> None:
        self.groups.setdefault(group, GroupCount(size, chain.kind, chain.is_single))

    def _add(self, identity: TraceIdentity, path: str) -> None:
        main = self._main(identity)
        if main is not None:
            if identity.scored:
                self._unscored.discard(main)
            return
        keys = identity.keys
        if not identity.scored:
            self._unscored.add(keys[0])
        chain = self._chain(identity, path)
        self._chain_of[keys[0]] = chain.base
        if identity.own is None:
            chain.members[keys[0]] = None
        else:
            chain.fix(keys[0], Free(*identity.own))
        if len(keys) > 1:
            self._episodes.update(dict.fromkeys(keys, (keys[0], len(keys))))

    def _main(self, identity: TraceIdentity) -> str | None:
        """Key under which a line's rollout was counted, by any of its traces."""
        for key in identity.keys:
            if key in self._chain_of:
                return key
            if key in self._episodes:
                return self._episodes[key][0]
        return None

    def _chain(self, identity: TraceIdentity, path: str) -> Chain:
        """The groups that a trace belongs to: those that it names, those of its task, or one of its own."""
        size, single = self.group_size or identity.group_size or 0, False
        if identity.own is not None:
            base, size = identity.own.group, identity.own.size
        elif identity.group is not None:
            base, size = identity.group_id(identity.group), size or self.learned
        elif size and (identity.task or identity.prompt):
            self._look_at_name(identity, path)
            asked = (identity.kind, identity.env or "", identity.task, identity.prompt)
            base = identity.group_id(id_of("task", identity.scope or "", *asked))
        else:
            base, size, single = identity.group_id(f"single/{identity.traces[0]}"), 1, True
        if (chain := self._chains.get(base)) is None:
            is_exact = identity.group is None or not self.whole
            chain = self._chains[base] = Chain(base, identity.kind, size, is_exact, single)
        chain.size = max(chain.size, size)
        return chain

    def _look_at_name(self, identity: TraceIdentity, path: str) -> None:
        """Notice a task's name that stands for several prompts or environments, once."""
        if not identity.task:
            return
        name = id_of(identity.scope or "", identity.kind, identity.task)
        asked = id_of(identity.env or "", identity.prompt)
        if (before := self._asked.setdefault(name, asked)) is not None and before != asked:
            self._asked[name] = None
            self.ambiguous.add(f"{identity.task[:80]} in {path}")


def _has_room(group: KnownGroup | None) -> bool:
    return group is not None and len(group.members) < group.size


def _of(free: Free | None) -> Free:
    if free is None:
        raise RuntimeError("a trace is placed before its group was numbered")
    return free
