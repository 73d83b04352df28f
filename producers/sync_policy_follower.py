"""SyncPolicyFollower: the policies of a run for code that isn't asynchronous, such as a worker process.

Guarantees: every method does what `PolicyFollower`'s does and returns when that is done; any thread may call it; it
follows in a thread of its own meanwhile. Leaves out: forks, as `SyncRolloutProducer` does.

    with SyncPolicyFollower(namespace="run-7", bootstrap_servers="localhost:9092") as policies:
        load(policies.newest().uri)
"""

from __future__ import annotations

from typing import Self

from rolloutlog.contract.events.policy_versions import PublishedPolicy
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.loop_thread import LoopThread
from rolloutlog.producers.policy_follower import PATIENCE_S, PolicyFollower


class SyncPolicyFollower:
    """A `PolicyFollower` on an event loop of its own, in a thread of its own."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
    ) -> None:
        """Arguments as of `PolicyFollower`. Opens at once; raises what its `open` raises."""
        self._follower = PolicyFollower(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._thread = LoopThread("policy follower", self._follower.open, self._follower.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def current(self) -> Policy | None:
        """The newest policy of the newest timeline; None before the first. Raises what ended the following."""
        return self._follower.current

    def newest(self, timeout_s: float | None = PATIENCE_S) -> PublishedPolicy:
        """The current policy; the first is waited for. Raises Starved after `timeout_s` seconds."""
        return self._thread.wait(self._follower.newest, timeout_s)

    def newer(self, than: Policy, timeout_s: float | None = PATIENCE_S) -> PublishedPolicy:
        """The current policy, once it is another one than `than`. Raises Starved after `timeout_s` seconds."""
        return self._thread.wait(self._follower.newer, than, timeout_s)

    def find(self, policy: Policy) -> PublishedPolicy:
        """Any policy that was published, current or not. Raises UnknownPolicy."""
        return self._thread.wait(self._follower.find, policy)

    def close(self) -> None:
        """Stop following; again, or in a forked child, nothing."""
        self._thread.close()
