"""Every python and bash block of README and docs runs, in order, page by page, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from rolloutlog.broker.process.ports import free_ports

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_TORCH = re.compile(r"^import torch$|^from rolloutlog import .*\bpack$", re.MULTILINE)
DOCUMENTED_PORT = "9092"
SHORT = {"ARGS": "--recorded"}
"""Of `make demo`, which takes minutes: `tests/live/test_demo.py` has it whole."""
BLOCK_S = 180

Reading = Mapping[Path, Future[None]]


class Reader:
    """Runs the blocks of one page in an empty folder, on a free port in place of the documented one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, str(port)
        own = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}  # of a `make test`
        self.environment = own | SHORT | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(self, *command: str) -> None:
        folder = ROOT if command[-1].startswith("make ") else self.folder
        done = subprocess.run(
            command, cwd=folder, env=self.environment, timeout=BLOCK_S, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"

    def bash(self, example: Example) -> None:
        self.run("bash", "-euo", "pipefail", "-c", self.on_port(str(example.parsed)))

    def python(self, example: Example) -> None:
        self.run(sys.executable, "-c", self.on_port(str(example.parsed)))

    def on_port(self, text: str) -> str:
        return text.replace(DOCUMENTED_PORT, self.port)


def lacks_torch(page: Path) -> bool:
    """Whether a page's blocks need torch where there is none."""
    return find_spec("torch") is None and NEEDS_TORCH.search(page.read_text(encoding="utf-8")) is not None


def read(page: Path, folder: Path) -> None:
    """Run all blocks of a page, and stop the broker that it started."""
    reader = Reader(folder, free_ports(1)[0])
    parsers = [CodeBlockParser("bash", reader.bash), CodeBlockParser("python", reader.python)]
    document = Sybil(parsers=parsers, encoding="utf-8").parse(page)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        reader.run("rolloutlog", "broker", "down")


@pytest.fixture(scope="module")
def reading(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Reading]:
    """The pages that are asked for, two at a time, since they wait a lot for brokers."""
    asked = [item for item in request.session.items if isinstance(item, pytest.Function)]
    pages = [cast("Path", item.callspec.params["page"]) for item in asked if item.module is request.module]
    readable = [page for page in pages if not lacks_torch(page)]
    with ThreadPoolExecutor(2) as pool:
        yield {page: pool.submit(read, page, tmp_path_factory.mktemp(page.stem)) for page in readable}


@pytest.mark.broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page(page: Path, reading: Reading) -> None:
    if lacks_torch(page):
        pytest.skip("torch isn't installed")
    reading[page].result()
