"""Candidates and seeds, as people read them (design/commands#facts).

Guarantees: `candidates` and `seeds` show the same facts in the same words, so that one can be compared with the other;
candidates come in the order in which draws rank them, without those that are gone or of which no seed can be made: the
shard counts and tells them. Leaves out: choosing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.buffer.derivations.protocol import type_name
from rolloutlog.buffer.folding.tally import why_empty
from rolloutlog.buffer.shard.rendering import rendered
from rolloutlog.consumers.views.shard_view import shard_views
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.body import Resolved, body_of
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Draw, Seed
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body, store_of
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import read_run
from rolloutlog.kafka.source_log import source_of

NOT_DRAWN = Draw(number=0, rollouts=0, seeds=0, group_events=0, settings="")


@dataclass(slots=True)
class Emptiness:
    """Of the shards that were looked at, why nothing can be derived."""

    shards: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    derivations: Collection[str] = ()

    def __str__(self) -> str:
        return why_empty(self.shards, self.derivations)


async def candidate_rows(
    settings: Settings, derivation: str | None = None, emptiness: Emptiness | None = None
) -> AsyncGenerator[dict[str, Any]]:
    """What the run could derive now, by partition and rank; `derivation` chooses by name or kind. `emptiness` learns
    why there isn't more.

    Raises SettingsError for a derivation that the run doesn't have, or that isn't installed here.
    """
    connection = await connect(settings, Role.PEOPLE)
    record = await read_run(connection)
    settings = record.own_buffer(record.fit(settings))
    known = {one.name: type_name(type(one.derive)) for one in settings.buffer.derivations}
    wanted = {name for name, kind in known.items() if derivation in (None, name, kind)}
    if derivation is not None and not wanted:
        raise SettingsError(f"no derivation is called {derivation!r}; there are: {', '.join(known)}")
    emptiness = emptiness or Emptiness()
    emptiness.derivations = sorted(wanted)
    blobs = store_of(settings)
    source = source_of(connection, record)
    async with RunPayloads(connection, blobs, source) as payloads:
        async for shard in shard_views(connection, settings, source):
            emptiness.shards.append(shard.fold.numbers())
            sources = shard.fold.pool.sources
            live = [one for one in shard.fold.pool.live if one.derivation in wanted]
            handles = {one.offset: sources[one.offset].row.handle(shard.fold.partition) for one in live}
            events = await payloads.read_those_there(handles.values())
            for candidate in live:
                source, event = sources[candidate.offset].facts, events.get(handles[candidate.offset])
                trajectory = event and _trajectory(event, await payloads.body(handles[candidate.offset], event))
                if trajectory is None:
                    continue
                seed = rendered(source, candidate, trajectory, NOT_DRAWN, settings, shard.fold.partition)
                if isinstance(seed, Seed):
                    yield seed_row(seed)


async def seed_rows(settings: Settings) -> AsyncGenerator[dict[str, Any]]:
    """What was emitted, by partition and offset."""
    connection = await connect(settings, Role.PEOPLE)
    settings = (await read_run(connection)).fit(settings)
    blobs = store_of(settings)
    for partition in range(settings.topics.partitions):
        async with aclosing(read_to_end(connection, Topic.SEEDS, partition, allow_open=True)) as batches:
            async for events in batches:
                for event in events:
                    if (seed := await _seed(event, blobs)) is not None:
                        yield seed_row(seed) | _place(seed, event)


def _place(seed: Seed, event: Event) -> dict[str, Any]:
    """What a seed has and a candidate hasn't."""
    where = {"partition": event.partition, "offset": event.offset}
    return {"id": seed.id, "group": seed.group, "group_size": seed.group_size, **where}


def seed_row(seed: Seed) -> dict[str, Any]:
    """The facts of a seed: what it is, where it resumes, and its lineage. `node` is one of `source`'s own nodes."""
    source = seed.source
    policy = _policy(source.oldest_policy) if source and source.oldest_policy else None
    return {
        "kind": seed.kind,
        "anchor": seed.anchor and seed.anchor.kind,
        "node": seed.anchor and seed.anchor.node - (source.base if source else 0),
        "source": source and (source.trace or source.rollout),
        "env": seed.env,
        "depth": seed.depth,
        "reward": source and source.reward,
        "policy": policy and list(policy),
        "tokens": seed.tokens,
        "messages": seed.messages,
    }


def _policy(text: str) -> Policy | None:
    """None for what is none, in a seed of somebody else's."""
    try:
        return Policy.parse(text)
    except ValueError:
        return None


def _trajectory(event: Event, body: Resolved) -> Trajectory | None:
    """The payload of a candidate; None where it can't be had, which the shard finds out when it draws it."""
    try:
        return read_rollout(event, body).trajectory
    except Rejected:
        return None


async def _seed(event: Event, blobs: BlobStore | None) -> Seed | None:
    if event.headers.raw.get("ce_type") != EventType.SEED_EMITTED.encode():
        return None
    try:
        return Seed.decode(body_of(event, await resolve_body(event, blobs)).value)
    except ValueError:
        return None
