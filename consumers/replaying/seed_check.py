"""Every derived seed of a run drawn again and compared with what is on the log (design/buffer#draws).

Guarantees: each seed that a shard has folded is looked at once, under the settings that the run recorded, and is either
equal to the byte or told with what differs; what can't be known any more (rows or a payload deleted) is told apart.
Partitions are read one by one, payloads some at a time. Leaves out: drawing (`rolloutlog.buffer.offline.redraw`), and
seeds that no shard has folded yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from rolloutlog.buffer.offline.manifest import settings_of_text
from rolloutlog.buffer.offline.redraw import UNDECIDED, Finding, Redraw, Redrawn, key_of_seed
from rolloutlog.buffer.shard.candidate_sampler import CandidateDraw
from rolloutlog.buffer.shard.rendering import rendered
from rolloutlog.buffer.sources.candidates import Candidate, CandidateKey
from rolloutlog.consumers.replaying.past_index import all_rows, first_row, index_of
from rolloutlog.contract.errors import IndexMismatch, SettingsError
from rolloutlog.contract.events.body import body_of
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import Rejected, problem_of
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body, store_of
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import read_run
from rolloutlog.kafka.source_log import source_of

AT_ONCE = 64
TOLD = 100
"""Seeds that are told one by one; all are counted."""


@dataclass(slots=True, frozen=True)
class SeedFinding:
    """A seed at its place, draw `number`, that isn't equal; `said` and `drawn` are the candidates: offset of the source
    on `rollouts`, derivation and node."""

    finding: Finding
    seed: str
    partition: int
    offset: int
    number: int
    said: CandidateKey | None
    drawn: CandidateKey | None


@dataclass(slots=True)
class SeedCheck:
    """What came of it: how many seeds of each finding, and those that aren't equal, the first `TOLD` of them."""

    found: Counter[Finding] = field(default_factory=Counter[Finding])
    told: list[SeedFinding] = field(default_factory=list[SeedFinding])

    @property
    def ok(self) -> bool | None:
        """True, a proven False, or None where some can't be known any more and no other differs."""
        if any(number for finding, number in self.found.items() if finding not in (*UNDECIDED, Finding.EQUAL)):
            return False
        return None if any(self.found[finding] for finding in UNDECIDED) else True

    def add(self, redrawn: Redrawn, finding: Finding, partition: int) -> None:
        """Count one seed."""
        self.found[finding] += 1
        row, draw = redrawn.row, redrawn.row.seed.draw
        if finding is not Finding.EQUAL and len(self.told) < TOLD:
            number, key = -1 if draw is None else draw.number, redrawn.drawn and redrawn.drawn.key
            said = key_of_seed(row.seed)
            self.told.append(SeedFinding(finding, row.seed.id, partition, row.offset, number, said, key))

    def as_json(self) -> dict[str, Any]:
        """The object that `rolloutlog replay --verify --json` prints."""
        counts = {str(finding): self.found[finding] for finding in Finding}
        return {"seeds": self.found.total(), **counts, "ok": self.ok, "told": [asdict(each) for each in self.told]}


async def check_seeds(settings: Settings) -> SeedCheck:
    """Draw every folded seed again. Raises SettingsError where the run's settings can't be used here, RunMismatch,
    IndexMismatch, BlobUnavailable, BrokerUnreachable."""
    connection = await connect(settings, Role.REPLAY)
    run = await read_run(connection)
    try:
        agreed = run.fit(settings_of_text(dict(run.agreed), settings.namespace))
    except ValidationError as error:
        raise SettingsError(f"the settings of the run can't be used by this version: {problem_of(error)}") from error
    blobs, source = store_of(run.fit(settings)), source_of(connection, run)
    check = SeedCheck()
    async with RunPayloads(connection, blobs, source) as payloads, PayloadReader(connection, Topic.SEEDS) as seeds:
        for partition in range(run.partitions):
            comparing = _Comparing(agreed, partition, payloads, seeds, blobs)
            await _check(connection, comparing, check)
    return check


@dataclass(slots=True)
class _Comparing:
    """What it takes to render a seed of a partition again."""

    settings: Settings
    partition: int
    payloads: RunPayloads
    seeds: PayloadReader
    blobs: BlobStore | None

    async def add_all(self, some: Iterable[Redrawn], check: SeedCheck) -> None:
        """Compare and count, some at a time."""
        left = list(some)
        for start in range(0, len(left), AT_ONCE):
            await self._add(left[start : start + AT_ONCE], check)

    async def _add(self, some: list[Redrawn], check: SeedCheck) -> None:
        same = [(each, each.drawn) for each in some if each.finding is Finding.EQUAL and each.drawn is not None]
        sources = await self.payloads.read_those_there(drawn.source.row.handle(self.partition) for _, drawn in same)
        said = await self.seeds.read_those_there(Handle(self.partition, each.row.offset) for each, _ in same)
        for each in some:
            finding = each.finding
            if finding is Finding.EQUAL and each.drawn is not None:
                source = sources.get(each.drawn.source.row.handle(self.partition))
                seed = said.get(Handle(self.partition, each.row.offset))
                finding = await self._compared(each.drawn, source, seed)
            check.add(each, finding, self.partition)

    async def _compared(self, drawn: CandidateDraw, source: Event | None, said: Event | None) -> Finding:
        """What rendering it again from its payload gives."""
        if source is None or said is None:
            return Finding.GONE
        try:
            body = await self.payloads.body(drawn.source.row.handle(self.partition), source)
            trajectory = read_rollout(source, body).trajectory
            value = body_of(said, await resolve_body(said, self.blobs)).value
        except Rejected:
            return Finding.GONE  # a claimed body that isn't there; records themselves were judged when they were folded
        known = drawn.candidate
        candidate = Candidate(known.offset, known.derivation, known.point, drawn.earlier)
        seed = rendered(drawn.source.facts, candidate, trajectory, drawn.draw, self.settings, self.partition)
        if not isinstance(seed, Seed):
            return Finding.RENDERED
        if seed.id != said.headers.id:
            return Finding.ID
        return Finding.EQUAL if seed.encode() == value else Finding.RENDERED


async def _check(connection: Connection, comparing: _Comparing, check: SeedCheck) -> None:
    index = await index_of(connection, comparing.partition)
    redraw = Redraw.of(comparing.partition, comparing.settings, first_row(index))
    try:
        async with aclosing(all_rows(index)) as batches:
            async for rows in batches:
                await comparing.add_all(redraw.read(rows), check)
        await comparing.add_all(redraw.end(), check)
    except Rejected as error:
        raise IndexMismatch(f"rows of rollout-index/{comparing.partition} contradict one another: {error}") from error
