"""The rights that each role needs on a cluster with access control, as data and as lines for Kafka's own tool.

Guarantees: they follow from the table of topics and the names of groups and transactional ids, so a role has what it
uses and no more; all lie under the namespace's prefix. Leaves out: granting them, which the client can't do (reference
kafka 1), and users: the principal is `User:<role>` until you put yours in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Names, TopicSpec

OPERATOR = "operator"
"""Makes and deletes topics, and declares the run."""
EVERY_SERVICE = "every service"
EVERY_CONSUMER = "every consumer"
PEOPLE = "people"

ROLES = ("workers", "importers", "buffer", "feeder", "trainer", "replay", "audit", PEOPLE, OPERATOR)
CONSUMERS = frozenset({"workers", "importers", "buffer", "trainer"})
"""Roles that judge foreign records or lines, so write dead letters."""
GROUPS = {"workers": "workers", "buffer": "buffer"}
TRANSACTIONS = {"buffer": "buffer.", "trainer": "trainer", "feeder": "feed.", "importers": "import.", OPERATOR: "run"}
"""Transactional ids below the namespace; one that ends in a dot is a prefix."""


@dataclass(frozen=True, slots=True)
class Right:
    """Operations that a role may do on resources of one name, or of one prefix where `pattern` is prefixed."""

    role: str
    resource: str
    name: str
    pattern: str
    operations: tuple[str, ...]

    def command(self) -> str:
        """The line for `kafka-acls`; append its `--bootstrap-server` and `--command-config`."""
        words = ["kafka-acls", "--add", "--allow-principal", f"User:{self.role}"]
        for operation in self.operations:
            words += ["--operation", operation]
        return shlex.join([*words, f"--{self.resource}", self.name, "--resource-pattern-type", self.pattern])

    def as_json(self) -> dict[str, Any]:
        """The right as one JSON object."""
        return asdict(self)


def acls(settings: Settings) -> list[Right]:
    """The rights of every role in the settings' namespace."""
    names = Names(settings.namespace)
    return [right for role in ROLES for right in _rights(names, role)]


def _rights(names: Names, role: str) -> Iterator[Right]:
    if role == OPERATOR:
        owned = ("Create", "Delete", "Describe", "DescribeConfigs", "AlterConfigs", "Read", "Write")
        yield Right(role, "topic", names.namespace + ".", "prefixed", owned)
    else:
        for topic, spec in TOPICS.items():
            if operations := _operations(role, spec):
                yield Right(role, "topic", names.topic(topic), "literal", (*operations, "DescribeConfigs"))
    if role in GROUPS:
        yield Right(role, "group", names.group(GROUPS[role]), "literal", ("Read", "Describe"))
    elif role in ("audit", PEOPLE):
        yield Right(role, "group", names.namespace + ".", "prefixed", ("Describe",))
    if role in TRANSACTIONS:
        suffix = TRANSACTIONS[role]
        pattern = "prefixed" if suffix.endswith(".") else "literal"
        yield Right(role, "transactional-id", f"{names.namespace}.{suffix}", pattern, ("Write", "Describe"))


def _operations(role: str, spec: TopicSpec) -> tuple[str, ...]:
    if role == PEOPLE:
        return ("Read", "Describe")
    reads = role in spec.read_by or EVERY_SERVICE in spec.read_by
    writes = (
        role in spec.written_by
        or EVERY_SERVICE in spec.written_by
        or (EVERY_CONSUMER in spec.written_by and role in CONSUMERS)
    )
    if not reads and not writes:
        return ()
    return (*(("Read",) if reads else ()), *(("Write",) if writes else ()), "Describe")
