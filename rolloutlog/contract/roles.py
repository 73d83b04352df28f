"""Who connects to the cluster: a role is a set of rights, and a user of the cluster that has them.

Guarantees: every command and class that opens a connection has one, named here. Leaves out: the rights, which follow
from the table of topics (`topics`) and the names of groups and transactional ids (`rolloutlog.kafka.client.acls`).
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Roles, as `topics acls` prints them."""

    OPERATOR = "operator"
    PRODUCERS = "producers"
    WORKERS = "workers"
    IMPORTERS = "importers"
    FEEDERS = "feeders"
    BUFFER = "buffer"
    TRAINER = "trainer"
    PUBLISHERS = "publishers"
    REPLAY = "replay"
    AUDIT = "audit"
    RETRY = "retry"
    GC = "gc"
    PEOPLE = "people"


USED_BY: dict[Role, tuple[str, ...]] = {
    Role.OPERATOR: ("topics create", "topics describe", "topics delete"),
    Role.PRODUCERS: ("RolloutProducer", "SyncRolloutProducer"),
    Role.WORKERS: ("worker run", "PolicyFollower", "SyncPolicyFollower"),
    Role.IMPORTERS: ("import",),
    Role.FEEDERS: ("feed", "SeedFeeder"),
    Role.BUFFER: ("buffer run", "buffer reindex"),
    Role.TRAINER: ("train run", "GroupStream", "SyncGroupStream"),
    Role.PUBLISHERS: ("PolicyPublisher",),
    Role.REPLAY: ("replay", "ReplayBuffer"),
    Role.AUDIT: ("audit",),
    Role.RETRY: ("dead-letters retry",),
    Role.GC: ("gc",),
    Role.PEOPLE: ("status", "groups", "candidates", "seeds list", "show", "tail", "dead-letters list"),
}
"""Commands of `rolloutlog`, and classes of the library."""
