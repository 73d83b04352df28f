"""Work that a cancellation doesn't cut short, such as ending services in order (design/live-loop#run).

Guarantees: whoever is cancelled while it goes on is so once it has ended. Leaves out: how long it may take, which it
bounds itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def uncut(work: Coroutine[Any, Any, object]) -> None:
    """Raises what the work does, and CancelledError."""
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
