"""What the run is, as the topic `run` says it: declaring it, reading it, and agreeing with it (design/log#run).

Guarantees: a run is declared once; another declaration is refused, naming what differs, also when two are made at once.
Settings that can't work on the topics as they are, are refused before a service starts. Leaves out: the text of the
facts (`rolloutlog.contract.events.run`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import ValidationError

from rolloutlog.contract.errors import Fenced, RunMismatch, SettingsError
from rolloutlog.contract.events.declared_source import DeclaredSource
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.run import (
    CURSOR,
    DECLARATION,
    SETTINGS,
    TRAINER,
    check_declaration,
    read_fact,
    read_source,
    run_declared,
    settings_recorded,
    source_declared,
    trainer_recorded,
)
from rolloutlog.contract.events.run import SOURCE as SOURCE_FACT
from rolloutlog.contract.settings import BufferSettings, Deadline, Settings, TrainerSettings
from rolloutlog.contract.topics import KEEP_FOR_EVER, Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.acls import checked_by
from rolloutlog.kafka.client.admin import check_topics
from rolloutlog.kafka.client.backoff import retried
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, ends_of
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.write.transactions import TransactionalWriter

log = logging.getLogger(__name__)

SOURCE = "/topics"
SEEN_S, POLL_S = 15.0, 0.05
UNDECLARED = "`rolloutlog topics create` declares it"
ANOTHER = "what draws on another source is another run: give it a namespace of its own (`-n`)"
FIXED_FOR_LIFE = "every shard must draw and every process must count alike for the life of a run"


@dataclass(slots=True, frozen=True)
class RunRecord:
    """The newest fact of each name. `declaration` is None in a namespace where no run was declared, `trainer` the text
    of the trainer settings that were recorded last. Below `next_offset` the topic is read."""

    declaration: Mapping[str, Any] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    cursors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    trainer: Mapping[str, Any] | None = None
    next_offset: int = field(default=0, compare=False)

    @property
    def declared(self) -> Mapping[str, Any]:
        """The declaration. Raises RunMismatch where there is none."""
        if self.declaration is None:
            raise RunMismatch("no run is declared in this namespace", UNDECLARED)
        return self.declaration

    @property
    def partitions(self) -> int:
        """P of the run."""
        return int(self.declared["partitions"])

    @property
    def blobs(self) -> str | None:
        """The blob store that the run was declared with."""
        url = self.declared.get("blobs")
        return url if isinstance(url, str) else None

    @property
    def source(self) -> DeclaredSource | None:
        """The ended namespace that the run draws on. Raises RunMismatch where the declaration names one that isn't on
        the topic."""
        if (digest := self.declared.get("source")) is None:
            return None
        if (text := self.facts.get(f"{SOURCE_FACT}{digest}")) is None:
            raise RunMismatch(f"the run is declared with the source {digest}, of which `run` doesn't say what it is")
        return read_source(text)

    @property
    def trained_source(self) -> DeclaredSource | None:
        """The source whose own rollouts are trained here; None where the run trains what is made in it."""
        source = self.source
        return source if source is not None and source.offline else None

    def ensure_made_here(self, what: str) -> None:
        """Refuse `what` in a namespace that only trains what another one has made. Raises RunMismatch."""
        if (source := self.trained_source) is not None:
            raise RunMismatch(
                f"this namespace trains the rollouts of {source.namespace} offline, so there is no {what} in it",
                "declare a run without --offline in another namespace (`rolloutlog topics create -n ...`)",
            )

    @property
    def agreed(self) -> Mapping[str, Any]:
        """The settings that every service of the run agrees on, as text of the declaration's digest."""
        return self.settings.get(str(self.declared["settings"]), {})

    def trainer_settings(self, digest: str | None = None) -> TrainerSettings | None:
        """The trainer's settings under that digest, or those that were recorded last; None where there are none that
        this version knows."""
        text = self.trainer if digest is None else self.settings.get(digest, {}).get(TRAINER)
        return None if text is None else read_trainer(text)

    def fit(self, settings: Settings) -> Settings:
        """The settings with the run's own partitions and limit of a record, and its blob store where they name none:
        who only looks or produces need not agree on anything."""
        own = {"partitions": self.partitions, "max_message_bytes": int(self.declared["max_message_bytes"])}
        topics = settings.topics.model_copy(update=own)
        return settings.model_copy(update={"topics": topics, "blobs": settings.blobs or self.blobs})

    def own_buffer(self, settings: Settings) -> Settings:
        """The settings with the run's own buffer, for who looks at what it would derive.

        Raises SettingsError where that can't be read here, such as a derivation that isn't installed.
        """
        try:
            buffer = BufferSettings.model_validate(self.agreed.get("buffer", {}))
        except ValidationError as error:
            why = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise SettingsError(f"the run's own settings of the buffer can't be read here: {why}") from None
        return settings.model_copy(update={"buffer": buffer})

    def on(self, connection: Connection) -> Connection:
        """The connection with the run's own limit of a record and number of partitions."""
        limit = int(self.declared["max_message_bytes"])
        return replace(connection, max_message_bytes=limit, partitions=self.partitions)


async def read_run(connection: Connection, since: RunRecord | None = None, *, known: Ends | None = None) -> RunRecord:
    """The run's record as committed now, or at the `known` end; what is read goes on where `since` ended. Raises
    NotFound where the topic isn't there."""
    since, end = since or RunRecord(), known or await ends_of(connection, Topic.RUN, 0)
    if 0 < end.stable <= since.next_offset:
        return since
    facts, trainer = {**since.facts}, since.trainer
    # an open transaction hides a cursor that isn't a fact yet, so it doesn't matter here
    async for events in read_to_end(connection, Topic.RUN, 0, since.next_offset, allow_open=True, known=end):
        for event in events:
            if (fact := _fact(event, facts)) is not None:
                facts[fact[0]] = fact[1]
        trainer = last_trainer(events) or trainer
    return RunRecord(
        facts.get(DECLARATION),
        {name.removeprefix(SETTINGS): body for name, body in facts.items() if name.startswith(SETTINGS)},
        {name.removeprefix(CURSOR): body for name, body in facts.items() if name.startswith(CURSOR)},
        facts,
        trainer,
        end.stable,
    )


def last_trainer(events: Sequence[Event]) -> Mapping[str, Any] | None:
    """The text of the trainer settings that the events recorded last; None where they record none."""
    for event in reversed(events):
        fact = _fact(event)
        if fact is not None and fact[0].startswith(SETTINGS) and isinstance(text := fact[1].get(TRAINER), dict):
            return cast("Mapping[str, Any]", text)
    return None


def read_trainer(text: Mapping[str, Any]) -> TrainerSettings | None:
    """Trainer settings as they were recorded; None, with a warning, where this version doesn't know them."""
    try:
        return TrainerSettings.of_record(text)
    except ValueError as error:
        log.warning("the trainer settings on `run` can't be read: %s", error)
        return None


async def declare(connection: Connection, settings: Settings, source: DeclaredSource | None = None) -> RunRecord:
    """Declare the run, with the source that it draws on, or find it declared with the same settings and, where one is
    given, the same source. Raises RunMismatch where it has others.

    Two at once are put in order by a transactional id of their own: the newer fences the older, which then finds what
    the newer declared.
    """
    check_retention(settings)
    with contextlib.suppress(Fenced):
        async with TransactionalWriter(connection, connection.names.transactional_id("run")) as writer:
            if (await read_run(connection)).declaration is None:
                now = time.time_ns() // 1_000_000
                async with writer.transaction() as transaction:
                    await transaction.send(settings_recorded(settings, source=SOURCE, now=now))
                    await transaction.send(trainer_recorded(settings.trainer, source=SOURCE, now=now))
                    if source is not None:
                        await transaction.send(source_declared(source, source=SOURCE, now=now))
                    await transaction.send(run_declared(settings, source, source=SOURCE, now=now))
    found = await _declared(connection)
    compare(found, settings)
    if source is not None:
        compare_source(found.source, source)
    return found


async def agree(connection: Connection, settings: Settings, *, checkpoint_interval_s: float = 0.0) -> RunRecord:
    """What a service does first: topics and run are there, with these settings, and can work.

    Raises TopicMissing, RunMismatch (not declared, or declared otherwise), TopicMismatch (partitions, limit of a
    record, retention, timestamps), SettingsError (retention below the interval of checkpoints).
    """
    check_retention(settings, checkpoint_interval_s)
    await check_topics(connection, settings, checked_by(connection.role))
    record = await read_run(connection)
    compare(record, settings)
    return record


async def _declared(connection: Connection) -> RunRecord:
    """The record once readers see the declaration, a moment after its commit has returned."""

    async def look() -> RunRecord:
        if (found := await read_run(connection)).declaration is None:
            raise RunMismatch(f"the declaration of the run isn't there after {SEEN_S:.0f} s")
        return found

    return await retried(look, RunMismatch, limit_s=SEEN_S, pause_s=POLL_S)


def compare(record: RunRecord, settings: Settings) -> None:
    """Raise RunMismatch where the run is declared with other settings, naming all that differ."""
    limit, ours = "max_message_bytes", settings.agreed()
    theirs = {name: record.agreed.get(name, {}) for name in ours}
    ours["topics"] |= {limit: settings.topics.max_message_bytes}
    theirs["topics"] = {**theirs["topics"], limit: record.declared[limit]}
    found = [
        f"the run has {path} = {said!r}, this deployment has {mine!r}" for path, said, mine in differences(theirs, ours)
    ]
    if found:
        raise RunMismatch(f"{'; '.join(found)}: {FIXED_FOR_LIFE}")


def compare_source(theirs: DeclaredSource | None, ours: DeclaredSource) -> None:
    """Raise RunMismatch where the run draws on another source, or on none (design/buffer#source)."""
    if theirs is None:
        raise RunMismatch(f"the run is declared without a source: {FIXED_FOR_LIFE}", ANOTHER)
    found = [f"{path} = {said!r}, not {mine!r}" for path, said, mine in differences(theirs.text, ours.text)]
    if found:
        raise RunMismatch(f"the run draws on a source with {'; '.join(found)}: {FIXED_FOR_LIFE}", ANOTHER)


def check_retention(settings: Settings, checkpoint_interval_s: float = 0.0) -> None:
    """Refuse a retention shorter than what a resume or a waiting group still needs (design/log#retention)."""
    kept, straggler = settings.topics.retention_ms, settings.trainer.straggler
    needed = {
        "the checkpoint interval": checkpoint_interval_s,
        "trainer.starve_s": settings.trainer.starve_s,
        "buffer.lease_s": settings.buffer.lease_s,
        "trainer.straggler.seconds": straggler.seconds if isinstance(straggler, Deadline) else 0.0,
    }
    name = max(needed, key=lambda key: needed[key])
    if kept != KEEP_FOR_EVER and kept < needed[name] * 1000:
        raise SettingsError(
            f"topics.retention_ms {kept} is below {name}, {needed[name]:g} s: records would go before they are used"
        )


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted paths at which two settings differ, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        left, right = cast("dict[str, Any]", theirs), cast("dict[str, Any]", ours)
        for key in sorted(left.keys() | right.keys()):
            yield from differences(left.get(key), right.get(key), f"{path}.{key}" if path else key)
    elif theirs != ours:
        yield path, theirs, ours


def _fact(event: Event, before: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[str, Mapping[str, Any]] | None:
    """Name and body of a fact; None for what isn't one: nothing foreign on the topic may stop a service.

    Settings lie before the declaration that names them; without what lies `before`, that is not looked at.
    """
    try:
        name, body = read_fact(event)
        if name == DECLARATION and before is not None:
            check_declaration(body, before.get(f"{SETTINGS}{body.get('settings')}", {}))
    except Rejected as error:
        log.warning("run/%d/%d isn't a fact of the run: %s", event.partition, event.offset, error)
        return None
    return name, body
