"""A broker that is started and stopped once, so that Java knows what a start needs (13 s of CPU, 70 MB).

Guarantees: the cache comes to its place by a rename, whole; the broker's data go. Leaves out: who uses it
(`kafka_commands`).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rolloutlog.broker.cluster import Cluster
from rolloutlog.broker.install.jars import fetch
from rolloutlog.broker.install.java import java
from rolloutlog.broker.install.start_cache import start_cache
from rolloutlog.broker.install.start_progress import OnProgress, silent
from rolloutlog.broker.lifetime import Owned
from rolloutlog.broker.process import node_process as process
from rolloutlog.broker.process.data_folder import BrokerFolder
from rolloutlog.contract.errors import BrokerFailed

WRITES_S = 120.0
"""Java writes it when the broker ends."""


def make_start_cache(on_progress: OnProgress = silent, *, to: Path | None = None) -> Path:
    """Make the one that brokers of this user start with, or another; the one that is there is returned.

    Raises BrokerFailed.
    """
    try:
        place = start_cache(java(), fetch(on_progress)) if to is None else to
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=".making-") as scratch:
                os.replace(_made(Path(scratch), on_progress), place)
    except OSError as error:
        raise BrokerFailed(f"the start cache can't be kept: {error}", "is there room on that disk?") from error
    return place


def _made(folder: Path, on_progress: OnProgress) -> Path:
    lifetime, made = Owned(folder), folder / "made.aot"
    owner = process.identify(os.getpid())
    cluster = Cluster(BrokerFolder.of(folder / "data"), lifetime, owner, True, on_progress, makes=made)
    try:
        state = cluster.start(1)
        cluster.stop(state.ids, WRITES_S)
    finally:
        lifetime.close()
    if not made.is_file():
        raise BrokerFailed("Java wrote no start cache", "brokers start without one, only slower")
    return made
