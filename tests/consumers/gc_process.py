"""A collection in a process of its own, to be killed between seal and deletion: `python gc_process.py SETTINGS`.

It says `sealed` on stdout when its seals are on the log and nothing is deleted, and stands there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from unittest.mock import patch

from rolloutlog.consumers.collecting import gc_service
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection


async def stand(connection: Connection, offsets: Mapping[tuple[Topic, int], int]) -> None:
    print("sealed", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    with patch.object(gc_service, "delete_below", stand):
        asyncio.run(gc_service.collect(Settings.model_validate_json(sys.argv[1])))


if __name__ == "__main__":
    main()
