"""Kafka's 45 jars: fetched once by their coordinates, kept in the user's cache, checked at every use.

Guarantees: what `fetch` returns has the SHA-256 of `jars.lock`, whatever was killed or fetched twice at once
before: a jar comes into the cache by a rename of a checked file, and one that was damaged later is fetched again. The
repository's certificate is judged by the system's store, where a company's proxy has its own. Leaves out: resolving
dependencies (the lock file lists them all; the resolver's own answer is wrong for Kafka) and the user's Maven
repository, which is neither read nor written.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rolloutlog.broker.install.flock import locked
from rolloutlog.broker.install.start_progress import OnProgress, StartProgress, silent
from rolloutlog.contract.errors import BrokerFailed, MissingExtra

FETCHES_AT_ONCE = 8
TIMEOUT_SECONDS = 30
SCRATCH = ".fetching-"
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file: a Maven coordinate `group:artifact:version` and the SHA-256 of its jar."""

    coordinate: str
    sha256: str

    @property
    def filename(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}-{self.sha256[:8]}.jar"

    def is_good(self, path: Path) -> bool:
        """Whether `path` holds this jar, whole and unchanged (all 45: 43 MB, about 50 ms)."""
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except FileNotFoundError:
            return False


def cache_dir() -> Path:
    """`ROLLOUTLOG_CACHE_DIR`, else `rolloutlog` in the user's cache folder."""
    if own := os.environ.get("ROLLOUTLOG_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolloutlog"


def repository() -> str:
    """The Maven repository that jars come from: `ROLLOUTLOG_MAVEN_REPOSITORY` (a mirror), else Maven Central."""
    return os.environ.get("ROLLOUTLOG_MAVEN_REPOSITORY", MAVEN_CENTRAL).rstrip("/")


def lock_file() -> list[Jar]:
    """The jars of Apache Kafka 4.4.0 and its log backend, as pinned by this version of rolloutlog."""
    text = resources.files("rolloutlog.broker").joinpath("jars.lock").read_text()
    return [Jar(*line.split(" sha256:")) for line in text.splitlines()]


def fetch(
    on_progress: OnProgress = silent, *, wanted: list[Jar] | None = None, cache: Path | None = None
) -> list[Path]:
    """All `wanted` jars (default: the lock file's) as paths in `cache`; what is missing or damaged is fetched.

    Raises BrokerFailed when network, disk or digest stand in the way; nothing unchecked stays in the cache.
    """
    wanted = lock_file() if wanted is None else wanted
    folder = (cache_dir() if cache is None else cache) / "jars"
    paths = {jar: folder / jar.filename for jar in wanted}
    with _explained(folder):
        if not all(jar.is_good(path) for jar, path in paths.items()):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / ".lock"), _systems_store():
                _fetch_missing(paths, folder, on_progress)
    return list(paths.values())


def _fetch_missing(paths: dict[Jar, Path], folder: Path, on_progress: OnProgress) -> None:
    """Fetch what no other process fetched while we waited for the lock."""
    for left_by_a_crash in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(left_by_a_crash)
    missing = {jar: path for jar, path in paths.items() if not jar.is_good(path)}
    done = len(paths) - len(missing)
    with tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH) as scratch:
        pool = ThreadPoolExecutor(FETCHES_AT_ONCE)
        try:
            fetches = [pool.submit(_fetch_one, jar, path, Path(scratch)) for jar, path in missing.items()]
            for fetched in as_completed(fetches):
                fetched.result()
                done += 1
                on_progress(StartProgress("fetch", done, len(paths)))
        finally:
            pool.shutdown(cancel_futures=True)


def _fetch_one(jar: Jar, path: Path, scratch: Path) -> None:
    """One jar by its coordinate. A context of its own: jgo's are not made to be shared by threads."""
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise MissingExtra("broker", "jgo") from error
    group, artifact, version = jar.coordinate.split(":")
    maven = MavenContext(repo_cache=scratch, remote_repos={"central": repository()}, timeout=TIMEOUT_SECONDS)
    fetched = maven.project(group, artifact).at_version(version).artifact().resolve()
    if not jar.is_good(fetched):
        found = hashlib.sha256(fetched.read_bytes()).hexdigest()
        raise BrokerFailed(
            f"{jar.coordinate} has the wrong digest: SHA-256 {found}, but the lock file says {jar.sha256}",
            "a proxy or mirror changed the file; nothing of it was kept. Fetch over another network",
        )
    os.replace(fetched, path)


@contextmanager
def _systems_store() -> Generator[None]:
    """Meanwhile trust whom the system trusts: requests, with which jgo fetches, has certificates of its own alone."""
    try:
        import truststore
    except ImportError as error:
        raise MissingExtra("broker", "truststore") from error
    truststore.inject_into_ssl()
    try:
        yield
    finally:
        truststore.extract_from_ssl()


@contextmanager
def _explained(folder: Path) -> Generator[None]:
    """Turn what can go wrong while fetching into one sentence each."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # requests' exceptions are OSErrors as well
            raise _unreachable(folder, error) from error
        raise BrokerFailed(
            f"the jars of Kafka can't be kept in {folder}: {error.strerror}",
            "make room there (45 MB), or set ROLLOUTLOG_CACHE_DIR to another folder",
        ) from error
    except RuntimeError as error:  # jgo's word for any answer but 200
        raise _unreachable(folder, error) from error


def _unreachable(folder: Path, error: Exception) -> BrokerFailed:
    trouble = "doesn't have them" if isinstance(error, RuntimeError) else f"can't be reached ({type(error).__name__})"
    return BrokerFailed(
        f"the jars of Kafka aren't all in {folder}, and {repository()} {trouble}",
        "run `rolloutlog broker fetch` once with a network, or copy that folder from a machine that has it",
    )
