"""One run of the demo's live loop for a bench: its settings changed, its services as processes, on a broker at hand.

Guarantees: it is the demo itself (`rolloutlog.cli.demonstration.live_demo`), report and audit included. Leaves out:
what a bench does to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import DemoFolder, LiveDemo, Target
from rolloutlog.cli.demonstration.loop_follower import LoopFollower
from rolloutlog.cli.demonstration.loop_screen import one_line
from rolloutlog.contract.settings import Settings
from rolloutlog.settings_sources import load
from rolloutlog.supervisor.live_run import Watched

SAY_S = 15.0


def demo_run(
    broker: EmbeddedKafka,
    parent: Path,
    target: Target,
    *,
    change: Callable[[str], str] = lambda text: text,
    onlook: Callable[[Watched], None] = lambda _: None,
) -> tuple[dict[str, Any], Settings]:
    """What the demo reports, and the settings of its run; `change` is made to the text of its settings."""
    folder, progress, said = DemoFolder.new(parent), Console(stderr=True), [0.0]
    folder.config.write_text(change(folder.config.read_text()))
    settings = load({"bootstrap_servers": broker.bootstrap_servers}, folder.config).settings

    def show(follower: LoopFollower, seconds: float) -> None:
        if seconds - said[0] >= SAY_S:
            said[0] = seconds
            progress.print(one_line(follower.facts, follower.rows, seconds))

    demonstration = LiveDemo(folder, settings, target, show)
    return asyncio.run(demonstration.run(asyncio.Event(), progress.print, onlook)), settings
