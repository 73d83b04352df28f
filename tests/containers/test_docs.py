"""The commands of docs/compose.md, in order, as a reader runs them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from tests.containers.stack import ROOT, STARTS_S, Stack, run

pytestmark = [pytest.mark.containers, pytest.mark.timeout(420)]

PAGE = ROOT / "docs" / "compose.md"
DOCUMENTED_PORT = "9092"


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def evaluate(example: Example) -> None:
        text = str(example.parsed).replace(DOCUMENTED_PORT, str(stack.port))
        run("bash", "-euc", text, environment=stack.environment | {"PATH": path}, timeout_s=STARTS_S)

    document = Sybil(parsers=[CodeBlockParser("sh", evaluate)], encoding="utf-8").parse(PAGE)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        stack.remove()
