"""A dead letter as somebody who tries it again reads it, and which of them are meant.

Guarantees: pure; whatever lies on the topic is a letter or None. Leaves out: writing them
(`rolloutlog.contract.events.dead_letters`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.validation import read_attributes, read_json
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True, frozen=True)
class Letter:
    """What was rejected. `place` is the record on the log, or the line of a file; `handle` is None for a line, and for
    a derivation alone."""

    kind: EventType
    place: str
    reason: str
    detail: str
    topic: Topic | None = None
    handle: Handle | None = None

    @property
    def is_rollout(self) -> bool:
        """True for a record on `rollouts`."""
        return self.topic is Topic.ROLLOUTS and self.handle is not None


@dataclass(slots=True, frozen=True)
class LetterFilter:
    """Which letters are meant; None: any. `place` is `topic/partition/offset`."""

    reason: str | None = None
    topic: Topic | None = None
    place: str | None = None

    def takes(self, letter: Letter) -> bool:
        """True for a letter that is meant."""
        return (
            self.reason in (None, letter.reason)
            and (self.topic is None or letter.place.startswith(f"{self.topic}/"))
            and self.place in (None, letter.place)
        )


def read_letter(event: Event) -> Letter | None:
    """The dead letter in an event; None for what isn't one."""
    try:
        kind, body = read_attributes(event), read_json(event)
    except Rejected:
        return None
    topic, handle = rejected_place(event) or (None, None)
    return Letter(kind, _place(body), str(body.get("reason")), str(body.get("detail") or ""), topic, handle)


def distinct(letters: Iterable[Letter]) -> list[Letter]:
    """Each rejection once: buffer and trainer may both have told one, and a second reader may tell it again."""
    found: dict[tuple[str, ...], Letter] = {}
    for letter in letters:
        told = "" if letter.handle is not None else letter.detail  # a record may lack several derivations
        found.setdefault((letter.kind, letter.place, told), letter)
    return list(found.values())


def _place(body: dict[str, Any]) -> str:
    if "path" in body:
        return f"{body['path']}:{body.get('line')}"
    place = f"{body.get('topic')}/{body.get('partition')}/{body.get('offset')}"
    return f"{body['namespace']}:{place}" if body.get("namespace") else place
