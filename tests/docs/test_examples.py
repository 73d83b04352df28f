"""Every python and bash block of README and docs runs, in order, page by page, as a reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from rolloutlog.broker.ports import free_ports

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTED_PORT = "9092"
BLOCK_S = 180


class Reader:
    """Runs the blocks of one page in an empty folder, on a free port in place of the documented one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, str(port)
        self.environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

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


@pytest.mark.broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, free_ports(1)[0])
    parsers = [CodeBlockParser("bash", reader.bash), CodeBlockParser("python", reader.python)]
    document = Sybil(parsers=parsers, encoding="utf-8").parse(page)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        reader.run("rolloutlog", "broker", "down")
