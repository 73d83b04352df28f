"""Java's start cache: used where it fits, passed over where it doesn't (design/brokers#start-cache)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from rolloutlog.broker import fetch
from rolloutlog.broker.embedded import EmbeddedKafka
from rolloutlog.broker.install.java import java
from rolloutlog.broker.install.start_cache import start_cache
from rolloutlog.broker.training_run import make_start_cache

pytestmark = pytest.mark.broker


def started(cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[float, bool]:
    """CPU seconds of a broker's start, and whether Java has mapped that cache."""

    def here(java: Path, jars: Sequence[Path]) -> Path:
        return cache

    monkeypatch.setattr("rolloutlog.broker.cluster.start_cache", here)
    with EmbeddedKafka() as kafka:
        (node,) = kafka.state.nodes
        assert node.process is not None
        found = psutil.Process(node.process.pid)
        spent = found.cpu_times()
        is_mapped = sys.platform == "linux" and any(file.path == str(cache) for file in found.memory_maps())
    return spent.user + spent.system, is_mapped


def test_other_jars_or_another_java_have_another_cache(tmp_path: Path) -> None:
    jars = fetch()
    other = tmp_path / jars[0].name
    other.write_bytes(jars[0].read_bytes())
    runtime = tmp_path / "java-runtime"
    (runtime / "lib").mkdir(parents=True)
    (runtime / "release").write_text('JAVA_VERSION="26"')
    (runtime / "lib" / "modules").write_text("others")
    names = [
        start_cache(java(), jars),
        start_cache(java(), jars[1:]),
        start_cache(java(), [other, *jars[1:]]),
        start_cache(runtime / "bin" / "java", jars),
    ]
    assert len(set(names)) == 4
    assert start_cache(java(), jars) == names[0]


def test_one_that_cant_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.aot"
    broken.write_bytes(bytes(range(256)) * 4096)
    assert started(broken, monkeypatch)[0] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_start_with_it_takes_much_less_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make_start_cache(to=tmp_path / "made.aot")
    assert list(tmp_path.iterdir()) == [cache]
    without, _ = started(tmp_path / "none", monkeypatch)
    with_it, is_mapped = started(cache, monkeypatch)
    assert with_it < 0.7 * without, (with_it, without)
    assert is_mapped or sys.platform != "linux"
