"""The rights that each role needs on a cluster with access control, as data and as lines for Kafka's own tool.

Guarantees: they follow from the table of topics and the names of groups and transactional ids, so a role has what it
uses and no more (a test compares them with what Kafka's authorizer was asked); all lie under the namespace's prefix. A
right that Kafka gives with another one isn't named: who may read, write or delete may describe, and who may alter
settings may see them. Leaves out: granting them, which is the administrator's, and users: the principal is
`User:<role>` until you put yours in.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from rolloutlog.contract.errors import NotAllowed
from rolloutlog.contract.roles import Role
from rolloutlog.contract.topics import COLLECTED, TOPICS, Names, Topic

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional-id"
READ, WRITE, CREATE, DELETE = "Read", "Write", "Create", "Delete"
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = "Describe", "DescribeConfigs", "AlterConfigs"
OWNED = (CREATE, DELETE, ALTER_CONFIGS)
"""What the operator does with every topic."""
GROUPS = {
    Role.WORKERS: {"workers": READ}, Role.BUFFER: {"buffer": READ}, Role.OPERATOR: {"buffer": DESCRIBE},
    Role.PEOPLE: {"buffer": DESCRIBE, "workers": DESCRIBE},
}  # fmt: skip
"""The operator waits until the group has a coordinator, so that no first service fails; people see who owns what."""
TRANSACTIONS = {
    Role.BUFFER: "buffer.", Role.TRAINER: "trainer", Role.PUBLISHERS: "trainer", Role.IMPORTERS: "import.",
    Role.OPERATOR: "run", Role.RETRY: "retry", Role.GC: "gc", Role.FEEDERS: "feed.",
}  # fmt: skip
"""Transactional ids below the namespace; one that ends in a dot is a prefix."""


@dataclass(frozen=True, slots=True)
class Right:
    """Operations that a role may do on resources of one name, or of one prefix where `pattern` is prefixed."""

    role: Role
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

    @property
    def target(self) -> str:
        """What it is on; a prefix ends in a star."""
        return f"{self.name}*" if self.pattern == "prefixed" else self.name


def acls(namespace: str, source: str | None = None, *, offline: bool = False) -> list[Right]:
    """The rights of every role in a namespace, and on the one that it draws on, or trains `offline`."""
    own = [right for role in Role for right in rights_of(Names(namespace), role)]
    return own if source is None else [*own, *_on_source(Names(source), offline=offline)]


def _on_source(names: Names, *, offline: bool) -> Iterator[Right]:
    """What a run needs on its source: whoever folds or renders reads its rollouts, and who declares it looks at it
    and holds it. Who trains it, or shows or counts what was trained, reads what became of them there, too."""
    for role in (Role.OPERATOR, Role.BUFFER, Role.REPLAY, Role.PEOPLE):
        yield Right(role, TOPIC, names.topic(Topic.ROLLOUTS), "literal", (READ,))
    yield Right(Role.OPERATOR, TOPIC, names.topic(Topic.RUN), "literal", (READ, WRITE))
    trained = (Topic.ROLLOUTS, Topic.GROUP_EVENTS, Topic.POLICY_VERSIONS, Topic.DEAD_LETTERS)
    for role, topic in product((Role.TRAINER, Role.AUDIT, Role.PEOPLE) if offline else (), trained):
        yield Right(role, TOPIC, names.topic(topic), "literal", (READ,))


def rights_of(names: Names, role: Role) -> list[Right]:
    """The rights of one role."""
    return list(_rights(names, role))


def topics_of(role: Role | None) -> tuple[Topic, ...]:
    """The topics that a role meets; all of them for none."""
    met = role in (None, Role.OPERATOR)
    return tuple(topic for topic, spec in TOPICS.items() if met or role in (*spec.read_by, *spec.written_by))


def checked_by(role: Role | None) -> tuple[Topic, ...]:
    """The topics whose settings a role compares with the run's before it starts: those that it writes, and all that it
    meets where it is a service that must agree with the run on everything."""
    if role in (Role.OPERATOR, Role.REPLAY, Role.GC):
        return ()  # the one makes them; what the others write on `run` is small, whatever the settings
    if role in (None, Role.BUFFER, Role.TRAINER):
        return topics_of(role)
    return tuple(topic for topic, spec in TOPICS.items() if role in spec.written_by)


def operations_on(role: Role, topic: Topic) -> tuple[str, ...]:
    """What a role does with a topic."""
    owned = OWNED if role is Role.OPERATOR else ()
    return (*owned, *_used(role, topic))


def refused(names: Names, role: Role | None, user: str | None, lacks: Iterable[Right], answer: str = "") -> NotAllowed:
    """The error that names the user, what it lacks, and who needs it."""
    who = f"user {user}" if user else "this client"
    what = "; ".join(_summed(lacks)) or "a right"
    why = f", which the role {role} needs" if role else ""
    said = f" ({answer})" if answer else ""
    hint = f"`rolloutlog topics acls -n {names.namespace}` prints the rights of each role, as lines for kafka-acls"
    return NotAllowed(f"{who} lacks {what}{why}{said}", hint)


def lacking(names: Names, role: Role, seen: Collection[tuple[Topic, frozenset[str]]]) -> list[Right]:
    """What a role lacks on topics, of which Kafka has said what this user may do with each."""
    found: list[Right] = []
    for topic, allowed in seen:
        missing = tuple(operation for operation in operations_on(role, topic) if operation not in allowed)
        if missing:
            found.append(Right(role, TOPIC, names.topic(topic), "literal", missing))
    return found


def _summed(lacks: Iterable[Right]) -> Iterator[str]:
    """Rights of the same operations on the same kind of resource are one, however many names there are."""
    targets: dict[tuple[str, str], list[str]] = {}
    for right in lacks:
        targets.setdefault((", ".join(right.operations), right.resource), []).append(right.target)
    for (operations, resource), named in targets.items():
        yield f"{operations} on {resource} {', '.join(named)}"


def _rights(names: Names, role: Role) -> Iterator[Right]:
    if role is Role.OPERATOR:
        yield Right(role, TOPIC, f"{names.namespace}.", "prefixed", OWNED)
    for topic in TOPICS:
        if operations := _used(role, topic):
            yield Right(role, TOPIC, names.topic(topic), "literal", operations)
    for group, operation in GROUPS.get(role, {}).items():
        yield Right(role, GROUP, names.group(group), "literal", (operation,))
    if role in TRANSACTIONS:
        suffix = TRANSACTIONS[role]
        pattern = "prefixed" if suffix.endswith(".") else "literal"
        yield Right(role, TRANSACTIONAL_ID, f"{names.namespace}.{suffix}", pattern, (WRITE,))


def _used(role: Role, topic: Topic) -> tuple[str, ...]:
    spec = TOPICS[topic]
    reads, writes = role in spec.read_by, role in spec.written_by
    deletes, checks = role is Role.GC and topic in COLLECTED, topic in checked_by(role)
    return (*((READ,) * reads), *((WRITE,) * writes), *((DELETE,) * deletes), *((DESCRIBE_CONFIGS,) * checks))
