"""The newest live watermarks of a run: from where on a trainer that starts now reads (design/trainer#watermarks).

Guarantees: those of the last live step, whether it left them on `run` or with a checkpoint; None in a namespace where
none did, such as an older version's. Leaves out: what a buffer or a manifest needs.
"""

from __future__ import annotations

from rolloutlog.contract.events.run import closed_steps
from rolloutlog.contract.events.watermarks import Watermarks, newest_live
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.policy_log import PolicyFold, read_policy_log
from rolloutlog.kafka.run_record import RunRecord, read_run


def live_watermarks(run: RunRecord, policies: PolicyFold) -> Watermarks | None:
    """Of what was read."""
    return newest_live([*policies.checkpoints.values(), *closed_steps(run.facts)], policies.history)


async def read_live_watermarks(connection: Connection) -> Watermarks | None:
    """As committed now. Raises NotFound where the topic `run` isn't there."""
    return live_watermarks(await read_run(connection), await read_policy_log(connection, allow_open=True))
