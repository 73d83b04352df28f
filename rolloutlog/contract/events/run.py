"""Events of `run`: the declaration of the run, its settings and its source under their digests, cursors, and steps that
are done (design/log#run).

Guarantees: one key per fact, newest wins, so the compacted topic is what the run is; what is read is of its key's kind,
settings and a source are those of their digest, and a declaration agrees with the settings that it names. Leaves out:
seals and pins (`audit_sealed`, `manifest_pinned`), and reading the topic in order (`rolloutlog.kafka.run_record`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from rolloutlog.contract.events.declared_source import DeclaredSource
from rolloutlog.contract.events.event import Event, Outgoing, outgoing
from rolloutlog.contract.events.validation import read_attributes, read_json
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings, TrainerSettings, settings_digest
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.trainer_settings import trainer_digest
from rolloutlog.contract.vocabulary import EventType, RejectReason
from rolloutlog.contract.wire.rejection import HOSTILE, Rejected, fault_of, problem_of

M = TypeVar("M", bound=BaseModel)
DECLARATION = "run"
SETTINGS, SOURCE, CURSOR, STEP, SEAL, PIN = "settings/", "source/", "cursor/", "step/", "audit/", "manifest/"
TRAINER_SOURCE = "/trainer"
"""`ce_source` of who closes steps. A step that somebody else closes is none."""
TRAINER = "trainer"
"""What tells the text of a trainer's settings from that of the run's."""


def fact(kind: EventType, name: str, body: dict[str, Any], source: str, now: int) -> Outgoing:
    """A fact under its name, which is the key."""
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return outgoing(
        kind, Topic.RUN, key=name, event_id=id_of(name, text.decode()), source=source, value=text, now=now, subject=name
    )


def run_declared(settings: Settings, drawn_from: DeclaredSource | None = None, *, source: str, now: int) -> Outgoing:
    """`run.declared`: P, the limit of a record, the digest of the settings that must agree, and that of the source
    where the run draws on one."""
    body = {
        "run": settings.run_id,
        "partitions": settings.topics.partitions,
        "max_message_bytes": settings.topics.max_message_bytes,
        "settings": settings.digest,
        "blobs": settings.blobs,
    }
    if drawn_from is not None:
        body["source"] = drawn_from.digest
    return fact(EventType.RUN_DECLARED, DECLARATION, body, source, now)


def settings_recorded(settings: Settings, *, source: str, now: int) -> Outgoing:
    """`settings.recorded`: the text of the settings that must agree, under their digest."""
    return fact(EventType.SETTINGS_RECORDED, f"{SETTINGS}{settings.digest}", settings.agreed(), source, now)


def trainer_recorded(trainer: TrainerSettings, *, source: str, now: int) -> Outgoing:
    """`settings.recorded`: the text of a trainer's settings, under theirs; the newest are those that hold."""
    body = {TRAINER: trainer.recorded()}
    return fact(EventType.SETTINGS_RECORDED, f"{SETTINGS}{trainer.digest}", body, source, now)


def source_declared(drawn_from: DeclaredSource, *, source: str, now: int) -> Outgoing:
    """`source.declared`: the ended namespace that the run draws on, under the digest of what is said of it."""
    return fact(EventType.SOURCE_DECLARED, f"{SOURCE}{drawn_from.digest}", drawn_from.text, source, now)


def cursor_moved(name: str, position: dict[str, Any], *, source: str, now: int) -> Outgoing:
    """`cursor.moved`: how far an importer is; goes into the transaction of what it wrote."""
    return fact(EventType.CURSOR_MOVED, f"{CURSOR}{name}", position, source, now)


def step_closed(marks: Watermarks, *, source: str, now: int) -> Outgoing:
    """`step.closed`: the last record of a step's transaction; the newest of its timeline holds."""
    return fact(EventType.STEP_CLOSED, f"{STEP}{marks.timeline}", marks.model_dump(exclude_none=True), source, now)


def closed_steps(facts: Mapping[str, Mapping[str, Any]]) -> list[Watermarks]:
    """The last step of each timeline, live or not; one that can't be read, or that is of another number of partitions
    than the run has, says nothing, and a start costs more."""
    found: list[Watermarks] = []
    declared = facts.get(DECLARATION, {}).get("partitions")
    for name, body in facts.items():
        if name.startswith(STEP):
            with suppress(ValidationError):
                marks = Watermarks.model_validate(dict(body))
                fits = declared is None or len(marks.partitions) == declared
                found += [marks] * (fits and name == f"{STEP}{marks.timeline}")
    return found


def facts_under(
    facts: Mapping[str, object], prefix: str, model: type[M], what: str
) -> tuple[list[tuple[str, M]], list[str]]:
    """The facts of one kind of key by their names, and what is wrong with those that can't be read."""
    found: list[tuple[str, M]] = []
    wrong: list[str] = []
    for name, body in facts.items():
        if name.startswith(prefix):
            try:
                found.append((name, model.model_validate(body)))
            except ValidationError as error:
                wrong.append(f"the {what} {name[:80]!r} can't be read: {problem_of(error)}")
    return found, wrong


def read_fact(event: Event) -> tuple[str, dict[str, Any]]:
    """Name and body of a fact. Raises Rejected."""
    kind, name = read_attributes(event), (event.key or b"").decode(errors="replace")
    body = read_json(event)
    if not _fits(kind, name):
        raise Rejected(RejectReason.KEY, f"a {kind} under the key {name[:80]!r}")
    if kind is EventType.STEP_CLOSED and event.headers.source != TRAINER_SOURCE:
        raise Rejected(RejectReason.INCONSISTENT, f"a step closed by {event.headers.source!r:.80}, who is no trainer")
    if kind is EventType.SETTINGS_RECORDED and name != f"{SETTINGS}{_digest_of(body)}":
        raise Rejected(RejectReason.DIGEST, f"the settings aren't those of {name[:80]!r}")
    if kind is EventType.SOURCE_DECLARED and name != f"{SOURCE}{read_source(body).digest}":
        raise Rejected(RejectReason.DIGEST, f"the source isn't that of {name[:80]!r}")
    return name, body


def read_source(body: Mapping[str, Any]) -> DeclaredSource:
    """What a fact says of a source. Raises Rejected."""
    try:
        return DeclaredSource.model_validate(body)
    except ValidationError as error:
        raise Rejected(RejectReason.SHAPE, f"no source: {problem_of(error)}") from error


def check_declaration(body: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Look whether a declaration says what the settings of its digest say. Raises Rejected."""
    for name, kind in {"run": str, "settings": str, "partitions": int, "max_message_bytes": int}.items():
        if type(body.get(name)) is not kind:
            raise Rejected(RejectReason.SHAPE, f"`{name}` of a declaration is missing or of another type")
    if not isinstance(body.get("source"), str | None):
        raise Rejected(RejectReason.SHAPE, "`source` of a declaration is the digest of one")
    if settings.get("run") != body["run"] or settings.get("topics") != {"partitions": body["partitions"]}:
        raise Rejected(RejectReason.INCONSISTENT, f"it isn't of the settings {body['settings'][:80]!r}")


def _fits(kind: EventType, name: str) -> bool:
    return all(
        (kind is own) == fits
        for own, fits in (
            (EventType.RUN_DECLARED, name == DECLARATION),
            (EventType.SETTINGS_RECORDED, name.startswith(SETTINGS)),
            (EventType.SOURCE_DECLARED, name.startswith(SOURCE)),
            (EventType.CURSOR_MOVED, name.startswith(CURSOR)),
            (EventType.STEP_CLOSED, name.startswith(STEP)),
            (EventType.AUDIT_SEALED, name.startswith(SEAL)),
            (EventType.MANIFEST_PINNED, name.startswith(PIN)),
        )
    )


def _digest_of(body: dict[str, Any]) -> str:
    try:
        return trainer_digest(body[TRAINER]) if TRAINER in body else settings_digest(body)
    except HOSTILE as error:
        raise Rejected(RejectReason.SHAPE, f"no settings: {fault_of(error)}") from error
