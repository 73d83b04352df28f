"""Kafka's jars come into the cache whole and checked, or not at all; each trouble is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolloutlog.broker.install.jars import cache_dir, fetch, lock_file
from rolloutlog.broker.install.start_progress import StartProgress
from rolloutlog.contract.errors import BrokerFailed
from tests.broker.mirror import CONTENT, JARS, fill, served

ROOT = Path(__file__).parents[2]
TLS = ROOT / "tests" / "data" / "tls"
CLOSED_PORT = "http://127.0.0.1:9"
FETCH = """
import sys; from pathlib import Path
from rolloutlog.broker.install.jars import fetch
from tests.broker.mirror import JARS
fetch(wanted=JARS, cache=Path(sys.argv[1]))
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a repository that jars are fetched from; its jars are good."""
    folder = tmp_path / "repository"
    fill(folder)
    with served(folder) as url:
        monkeypatch.setenv("ROLLOUTLOG_MAVEN_REPOSITORY", url)
        yield folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept(cache: Path) -> list[Path]:
    """The jars in the cache."""
    return sorted((cache / "jars").glob("*.jar"))


def test_the_lock_file_pins_kafka_with_its_log_backend() -> None:
    jars = lock_file()
    assert len(jars) == 45
    assert {len(jar.sha256) for jar in jars} == {64}
    names = [jar.coordinate for jar in jars]
    assert "org.apache.kafka:kafka_2.13:4.4.0" in names
    assert "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3" in names


@pytest.mark.usefixtures("repository")
def test_jars_are_fetched_once_and_then_need_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StartProgress] = []
    paths = fetch(seen.append, wanted=JARS, cache=cache)
    assert [path.read_bytes() for path in paths] == [CONTENT] * len(JARS)
    assert [(step.done, step.total) for step in seen] == [(1, 3), (2, 3), (3, 3)]

    monkeypatch.setenv("ROLLOUTLOG_MAVEN_REPOSITORY", CLOSED_PORT)
    assert fetch(seen.append, wanted=JARS, cache=cache) == paths
    assert len(seen) == 3, "nobody is told of a fetch that isn't one"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no variable moves the system's store")
@pytest.mark.parametrize("store", ["ca", "stranger-ca"])
def test_the_systems_store_says_whom_to_trust(tmp_path: Path, cache: Path, store: str) -> None:
    """Where a company's proxy stands in between, its certificate is there and nowhere else."""
    fill(tmp_path / "repository")
    with served(tmp_path / "repository", certificate=TLS / "server.pem") as url:
        variables = {name: text for name, text in os.environ.items() if not name.endswith("_CA_BUNDLE")}
        variables |= {"SSL_CERT_FILE": str(TLS / f"{store}.pem"), "SSL_CERT_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", FETCH, str(cache)], cwd=ROOT, check=False, capture_output=True, text=True,
            env=variables | {"ROLLOUTLOG_MAVEN_REPOSITORY": url},
        )  # fmt: skip
    assert (done.returncode == 0) == (store == "ca"), done.stderr
    assert len(kept(cache)) == (len(JARS) if store == "ca" else 0)


def test_a_jar_with_the_wrong_digest_is_refused_and_not_kept(repository: Path, cache: Path) -> None:
    fill(repository, content=b"something else")
    with pytest.raises(BrokerFailed, match=r"org\.example:part-\d:1\.0 has the wrong digest: SHA-256 \w{64}, but"):
        fetch(wanted=JARS, cache=cache)
    assert kept(cache) == []


@pytest.mark.usefixtures("repository")
def test_a_half_jar_in_the_cache_is_never_served(cache: Path) -> None:
    """Whoever cut it: a crash, a full disk, an older program."""
    paths = fetch(wanted=JARS, cache=cache)
    paths[1].write_bytes(CONTENT[:100])
    assert [path.read_bytes() for path in fetch(wanted=JARS, cache=cache)] == [CONTENT] * len(JARS)


def test_a_connection_that_breaks_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, cut=True) as url:
        monkeypatch.setenv("ROLLOUTLOG_MAVEN_REPOSITORY", url)
        with pytest.raises(BrokerFailed, match="aren't all in"):
            fetch(wanted=JARS, cache=cache)
    assert kept(cache) == []


def test_without_a_network_and_with_an_empty_cache_it_says_what_to_do(tmp_path: Path) -> None:
    """The real repository, behind a proxy that isn't there."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), CLOSED_PORT)
    environment = os.environ | proxies | {"NO_PROXY": "", "no_proxy": "", "ROLLOUTLOG_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "rolloutlog.cli.main", "broker", "fetch"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == BrokerFailed.exit_code
    assert "can't be reached" in done.stderr
    assert "run `rolloutlog broker fetch` once with a network" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_repository_without_them_is_named(repository: Path, cache: Path) -> None:
    for jar in repository.rglob("*.jar"):
        jar.unlink()
    with pytest.raises(BrokerFailed, match=r"http://127\.0\.0\.1:\d+ doesn't have them"):
        fetch(wanted=JARS, cache=cache)


@pytest.mark.usefixtures("repository")
def test_a_cache_that_can_t_be_written_is_named(cache: Path) -> None:
    cache.touch()
    with pytest.raises(BrokerFailed, match=rf"can't be kept in {cache}/jars: Not a directory"):
        fetch(wanted=JARS, cache=cache)


@pytest.mark.usefixtures("repository")
def test_two_at_once_and_one_killed_leave_a_good_cache(cache: Path) -> None:
    fetches = [subprocess.Popen([sys.executable, "-c", FETCH, str(cache)], cwd=ROOT) for _ in range(3)]
    wait_for_scratch(cache)
    fetches[0].kill()
    assert [fetching.wait(timeout=60) for fetching in fetches[1:]] == [0, 0]
    assert [path.read_bytes() for path in fetch(wanted=JARS, cache=cache)] == [CONTENT] * len(JARS)
    assert {path.suffix for path in (cache / "jars").iterdir()} == {".jar", ""}, "nothing half-done is left"


def test_the_cache_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROLLOUTLOG_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "rolloutlog"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "rolloutlog"
    monkeypatch.setenv("ROLLOUTLOG_CACHE_DIR", "/elsewhere")
    assert cache_dir() == Path("/elsewhere")


def wait_for_scratch(cache: Path) -> None:
    """Wait until one of the processes has begun."""
    deadline = time.monotonic() + 30
    while not (cache / "jars").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
