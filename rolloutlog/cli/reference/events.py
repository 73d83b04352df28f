"""The page of event types and of the closed sets of words that they use.

Guarantees: every type with its topic and schema version, every reason, verdict, kind of seed and skip. Leaves out:
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from rolloutlog.buffer.index.skip import SKIPS
from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract import meanings
from rolloutlog.contract.events.event import SCHEMA
from rolloutlog.contract.topics import TOPICS
from rolloutlog.contract.vocabulary import RESOLVES_SLOT, RejectReason

W = TypeVar("W", bound=StrEnum)

SCHEMAS = """\
Each event carries the version of its type's schema. A reader takes older versions of a type, and sends newer ones and
unknown types to the dead letters with the reason."""

REJECTED = """\
A bad record goes to `dead-letters` with reason, place, headers and digest, and the offset moves on. A reason that
lies in the value ends the member's slot as failed(rejected), unless a good record of that or a higher attempt is
there; a reason that lies in the headers says nothing sure about a slot and ends none. `derivation.rejected` (reason
`derivation`) rejects no record: the rollout is sound, indexed and can be trained, but no seed is made of it."""

SKIPPED = """\
`rolloutlog status` counts them by derivation: one rollout may be a source of one derivation and not of another."""


def page() -> str:
    """docs/reference/events.md."""
    events = [
        (md.code(kind), md.code(topic), SCHEMA[kind], meanings.EVENTS[kind])
        for topic, spec in TOPICS.items()
        for kind in spec.types
    ]
    rejected = [
        (md.code(reason), "yes" if reason in RESOLVES_SLOT else None, meanings.REJECTED[reason])
        for reason in RejectReason
    ]
    return md.page(
        "Events",
        SCHEMAS,
        md.table(("type", "topic", "schema", "says"), events),
        "## Why a record is rejected",
        REJECTED,
        md.table(("reason", "ends the slot", "means"), rejected),
        "## Why a group is dropped",
        _words("reason", meanings.DROPPED),
        "## What the staleness rule says of a member",
        _words("verdict", meanings.VERDICTS),
        "## What a seed asks for",
        _words("kind", meanings.SEEDS),
        "## Why a rollout seeds nothing",
        SKIPPED,
        _words("reason", SKIPS),
    )


def _words(name: str, table: Mapping[W, str]) -> str:
    return md.table((name, "means"), [(md.code(word), meaning) for word, meaning in table.items()])
