"""The arms of an ablation as the demo's live loop over the log: its settings changed, and one run of them.

Guarantees: what is off is off in the demo's own settings, and the rest of them as it was; without a derivation the
others derive as often as with it. Leaves out: the arms in one process (`one_process`), which many seeds can be run of.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench.learning.demo_run import demo_run
from bench.learning.finished_tokens import finished_tokens
from bench.learning.one_process import Arm, Learning
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import LEARNED, Target

Change = Callable[[str], str]
BLOCK = re.compile(r"\[\[buffer\.derivations\]\].*?(?=\n\[)", re.DOTALL)
SHARE, RATIO = re.compile(r"(?<=\nshare = )[\d.]+"), re.compile(r"(?<=\nratio = )[\d.]+")


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """The settings with these words in place of those. Raises ValueError where one isn't there."""
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{old!r} isn't in the demo's settings")
        text = text.replace(old, new)
    return text


def without(text: str, *names: str) -> str:
    """The settings without these derivations."""
    blocks = {block: float(found[0]) for block in BLOCK.findall(text) if (found := SHARE.findall(block))}
    gone = [block for block in blocks if any(f'name = "{name}"' in block for name in names)]
    left = 1 - sum(blocks[block] for block in gone)
    text = replaced(text, dict.fromkeys(gone, ""))
    text = RATIO.sub(lambda found: f"{float(found[0]) * left:g}", text)
    return SHARE.sub(lambda found: f"{float(found[0]) / left:g}", text)


def change_of(arm: Arm, every: Arm) -> Change:
    """What an arm changes in the demo's settings; `every` has all on."""
    if arm.lag == 0:
        return partial(replaced, changes={"max_open = 128": "max_open = 32"})
    if not arm.masks:
        return partial(replaced, changes={"max_token_staleness = 2, ": ""})
    return lambda text: without(text, *(every.chances.keys() - arm.chances.keys()))


def learned_on_log(change: Change, arm: Arm, seed: int, limit_s: float) -> Learning:
    """One run over the log, on a broker of its own; seconds by the wall, with the start of all processes."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(fast_start=False) as broker:
        report, settings = demo_run(broker, Path(folder), Target(seconds=limit_s), change=change)
        tokens = sum(asyncio.run(finished_tokens(settings)).values())
    return Learning(
        arm.name,
        seed,
        learned=min(report["rewards"].values()) > LEARNED,
        seconds=report["seconds"],
        steps=report["steps"],
        rollouts=report["rollouts"].get("completed", 0),
        tokens=tokens,
        masked=round(report["masked_share"] * tokens),
        dropped=sum(count for end, count in report["groups"].items() if end != "trained"),
        rewards=report["rewards"],
    )
