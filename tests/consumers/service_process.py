"""The buffer service as a process of its own, with a short session, for tests of faults.

`python -m tests.consumers.service_process BOOTSTRAP NAMESPACE SESSION_MS`
"""

from __future__ import annotations

import asyncio
import logging
import sys

from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.quiet import quiet_clients
from rolloutlog.kafka.loop.loop_options import LoopOptions

PARTITIONS = 3


def settings_for(bootstrap_servers: str, namespace: str) -> Settings:
    """Settings of a run that derives freely and gives up on leases soon."""
    return Settings.model_validate(
        {
            "namespace": namespace,
            "bootstrap_servers": bootstrap_servers,
            "topics": {"partitions": PARTITIONS},
            "buffer": {"ratio": 0.5, "lease_s": 2.0},
            "trainer": {"batch_groups": 1, "max_open": 601, "overcommit": True},
        }
    )


def main() -> None:
    """Run until SIGTERM; its log says with its process id what it owns, for the test to wait on."""
    bootstrap_servers, namespace, session_ms = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(process)d %(message)s")
    quiet_clients()
    options = LoopOptions(session_timeout_ms=int(session_ms))
    asyncio.run(run_buffer(settings_for(bootstrap_servers, namespace), options=options))


if __name__ == "__main__":
    main()
