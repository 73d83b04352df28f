"""Checkpoints of a training loop: a file counts once its step is on the log, and a start goes back to the newest that
does (design/trainer#checkpoints)."""

from __future__ import annotations

import asyncio
import resource
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog import CheckpointFolder
from rolloutlog.contract.errors import CheckpointUnusable, NotFound, PathUnusable, RunMismatch, SettingsError
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.loop.training_batch import TrainingBatch
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.log import Log
from tests.trainer.test_stream import group, with_trainer

pytestmark = pytest.mark.broker


class Job:
    """A trainer whose model counts steps and whose optimizer remembers them."""

    def __init__(self, log: Log, folder: Path, *, keep: int = 2) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        torch.nn.init.zeros_(self.model.weight)
        self.checkpoints = CheckpointFolder(folder, keep=keep, model=self.model, optimizer=self.optimizer)
        self.log, self.settings = log, with_trainer(log.settings, batch_groups=1, staleness={"max_staleness": "none"})

    def open(self, start: Start | None = None) -> SyncGroupStream:
        return SyncGroupStream(self.settings, start or Start(resume=self.checkpoints))

    def train(self, batch: TrainingBatch, stream: SyncGroupStream, *, save: bool = True) -> None:
        self.model.weight.sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        saved = (lambda: self.checkpoints.save(stream, batch)) if save else None
        batch.trained(publish=lambda: (f"s3://w/{batch.step}", None), checkpoint=saved)

    def steps(self, count: int, start: Start | None = None, *, save: Callable[[int], bool] = lambda _: True) -> float:
        """Train so many groups, written before; the model's weight then."""
        with self.open(start) as stream:
            self.checkpoints.load(stream)
            tasks = [secrets.token_hex(4) for _ in range(count)]
            asyncio.run(self.log.write(*(record for task in tasks for record in group(task))))
            for _, batch in zip(range(count), stream, strict=False):
                self.train(batch, stream, save=save(batch.step or 0))
        return self.model.weight.item()


def names(folder: Path) -> list[str]:
    """Timeline and step of each file."""
    found = (path.name.removesuffix(".partial").rsplit("-", 3) for path in folder.iterdir())
    return sorted(f"{timeline}:{step}" for _, timeline, step, _ in found)


def test_a_start_goes_back_to_the_newest_checkpoint_optimizer_and_all(log: Log, tmp_path: Path) -> None:
    before = Job(log, tmp_path)
    third = before.steps(3)
    before.steps(1, Start(), save=lambda _: False)
    after = Job(log, tmp_path)
    with after.open() as stream:
        assert (stream.history.current, stream.step) == (Policy(1, 3), 4)
        assert after.checkpoints.load(stream)
        assert after.model.weight.item() == third
        assert after.optimizer.state_dict()["state"][0]["step"].item() == 3
        assert next(iter(stream)).step == 4, "what was trained since is drawn again"


def test_the_first_start_and_one_before_any_checkpoint(log: Log, tmp_path: Path) -> None:
    job = Job(log, tmp_path)
    start = Start(resume=job.checkpoints, weights="s3://w/0", digest="d")
    with job.open(start) as stream:
        assert not job.checkpoints.load(stream)
        assert stream.history.current == Policy(0, 0)
    job.steps(2, Start(), save=lambda _: False)
    with job.open(start) as stream:
        assert not job.checkpoints.load(stream)
        assert (stream.history.current, stream.step) == (Policy(1, 2), 3)


def test_a_file_has_its_name_once_its_step_is_on_the_log(log: Log, tmp_path: Path) -> None:
    job = Job(log, tmp_path)
    with job.open() as stream:
        asyncio.run(log.write(*group("a")))
        batch = next(iter(stream))
        stray = job.checkpoints.save(stream, batch)
        (left,) = tmp_path.iterdir()
        assert left.suffix == ".partial"
        killed_at = left.with_name(f"{left.name}.writing")
        killed_at.mkdir()
        (killed_at / "half").touch()
        job.train(batch, stream)
    (path,) = tmp_path.iterdir()
    saved = [e for e in asyncio.run(log.read(Topic.POLICY_VERSIONS)) if e.headers.type == EventType.CHECKPOINT_SAVED]
    assert len(saved) == 1
    assert path.as_uri().encode() in (saved[0].value or b"")
    assert stray.uri != path.as_uri()


@pytest.mark.parametrize("kept", [1, 2])
def test_the_newest_that_are_live_stay(log: Log, tmp_path: Path, kept: int) -> None:
    """What a resume left behind goes with the first one after it; another run's files aren't touched."""
    other = tmp_path / "other-0-1-00000000.safetensors"
    other.write_bytes(b"")
    Job(log, tmp_path, keep=9).steps(4)
    job = Job(log, tmp_path, keep=kept)
    job.steps(1, Start(resume=job.checkpoints.up_to(2)))
    other.unlink()
    assert names(tmp_path) == ["0:2", "1:3"][-kept:]


def test_files_of_a_run_that_had_the_same_name_push_out_none(log: Log, tmp_path: Path) -> None:
    """As lie there where topics were deleted and the folder wasn't."""
    for old in ("0-1-00000000", "0-1-ffffffff", "0-9-00000000"):
        (tmp_path / f"{log.settings.run_id}-{old}.safetensors").touch()
    Job(log, tmp_path, keep=1).steps(1)
    job = Job(log, tmp_path)
    with job.open() as stream:
        assert job.checkpoints.load(stream)


def test_a_rename_that_a_crash_left_out_is_finished(log: Log, tmp_path: Path) -> None:
    job = Job(log, tmp_path)
    weight = job.steps(2)
    newest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    newest.rename(newest.with_name(newest.name + ".partial"))
    again = Job(log, tmp_path)
    with again.open() as stream:
        assert newest.is_file()
        assert again.checkpoints.load(stream)
        assert again.model.weight.item() == weight


def damaged(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)


def unreadable(path: Path) -> None:
    """By an error of the system, as of a disk that fails."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


@pytest.mark.parametrize(
    ("harm", "said"),
    [(damaged, "isn't what was written"), (Path.unlink, "isn't there"), (unreadable, "can't be read")],
)
def test_a_damaged_or_missing_file_is_told_and_an_older_one_can_be_taken(
    log: Log, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    job = Job(log, tmp_path)
    job.steps(3)
    harm(next(path for path in tmp_path.iterdir() if "-0-3-" in path.name))
    events = len(asyncio.run(log.read(Topic.POLICY_VERSIONS)))
    with pytest.raises(CheckpointUnusable, match=f"step 3.*{said}") as caught:
        job.open()
    assert "up_to(2)" in (caught.value.hint or "")
    assert len(asyncio.run(log.read(Topic.POLICY_VERSIONS))) == events, "nothing was begun"
    with job.open(Start(resume=job.checkpoints.up_to(2))) as stream:
        assert job.checkpoints.load(stream)
        assert stream.step == 3
    with pytest.raises(NotFound, match="at or before step 0"):
        job.open(Start(resume=job.checkpoints.up_to(0)))


def test_what_is_another_runs_or_none_of_ours_is_refused(log: Log, tmp_path: Path) -> None:
    job = Job(log, tmp_path)
    job.steps(1)
    (path,) = tmp_path.iterdir()
    renamed = path.with_name(path.name.replace(log.settings.run_id, "another"))
    for uri, error in ((renamed.as_uri(), RunMismatch), ("file:///step-2.pt", CheckpointUnusable)):
        with job.open(Start()) as stream:
            asyncio.run(log.write(*group(uri)))
            batch = next(iter(stream))
            where = uri.replace("-0-1-", "-0-2-")
            batch.trained(publish=lambda: ("s3://w", None), checkpoint=lambda where=where: (where, None))
        with pytest.raises(error):
            job.open()


def test_parts_that_the_file_lacks_are_named(log: Log, tmp_path: Path) -> None:
    Job(log, tmp_path).steps(1)
    job = Job(log, tmp_path)
    more = CheckpointFolder(tmp_path, model=job.model, optimizer=job.optimizer, schedule=job.optimizer)
    with job.open() as stream, pytest.raises(SettingsError, match="schedule is only in"):
        more.load(stream)
    wider = CheckpointFolder(tmp_path, model=torch.nn.Linear(2, 1, bias=False), optimizer=job.optimizer)
    with job.open() as stream, pytest.raises(SettingsError, match="isn't like the one here: Error"):
        wider.load(stream)
    events = len(asyncio.run(log.read(Topic.POLICY_VERSIONS)))
    for other, said in ((more, "schedule is only in"), (wider, r"weight is \[1, 1\] there, and \[1, 2\] here")):
        with pytest.raises(SettingsError, match=said):
            job.open(Start(resume=other))
    assert len(asyncio.run(log.read(Topic.POLICY_VERSIONS))) == events, "nothing was begun"
    with pytest.raises(SettingsError, match="keep=0"):
        CheckpointFolder(tmp_path, keep=0)
    with pytest.raises(SettingsError, match="called rng"):
        CheckpointFolder(tmp_path, rng=job.model)


def test_who_goes_back_to_a_policy_gets_its_weights_alone(log: Log, tmp_path: Path) -> None:
    """Whether or not its checkpoint is still there."""
    job = Job(log, tmp_path, keep=1)
    job.steps(2)
    for version in (2, 1):
        with job.open(Start(resume=Policy(0, version))) as stream:
            assert stream.history.current is not None
            assert stream.history.current.version == version
            assert not job.checkpoints.load(stream)


async def test_an_asynchronous_loop_commits_what_it_saved(log: Log, tmp_path: Path) -> None:
    job = Job(log, tmp_path)
    async with GroupStream(job.settings) as stream:
        await log.write(*group("a"))
        batch = await anext(stream.batches())
        saved = job.checkpoints.save(stream, batch)
        await stream.trained(batch, publish="s3://w", checkpoint=saved.uri, checkpoint_digest=saved.digest)
        saved.commit()
    async with GroupStream(job.settings, Start(resume=job.checkpoints)) as stream:
        assert job.checkpoints.load(stream)


def test_a_folder_that_cant_be_written_leaves_the_batch_as_it_was(log: Log, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = Job(log, tmp_path / "file" / "folder")
    with job.open() as stream:
        asyncio.run(log.write(*group("a")))
        batch = next(iter(stream))
        with pytest.raises(PathUnusable, match="can't keep a checkpoint"):
            job.train(batch, stream)
        job.train(batch, stream, save=False)


def test_a_full_disk_leaves_the_batch_as_it_was_and_no_file(log: Log, tmp_path: Path) -> None:
    job = Job(log, tmp_path)
    job.checkpoints = CheckpointFolder(tmp_path, model=job.model, large=torch.nn.Linear(100, 100))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with job.open() as stream:
        asyncio.run(log.write(*group("a")))
        batch = next(iter(stream))
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            with pytest.raises(PathUnusable, match="can't keep a checkpoint") as caught:
                job.train(batch, stream)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.exit_code == 2
        assert list(tmp_path.iterdir()) == []
        assert asyncio.run(log.finals()) == []
        job.train(batch, stream)
    assert names(tmp_path) == ["0:1"]


@pytest.mark.parametrize("name", ["team/run 7%", "🚀" * 100 + "/7"], ids=["signs", "long"])
def test_a_run_may_be_called_anything(log: Log, tmp_path: Path, name: str) -> None:
    """Slashes, blanks, percent signs, hundreds of letters: names of files aren't names of runs."""
    settings = log.settings.model_copy(update={"run": name, "namespace": f"{log.settings.namespace}-run"})
    log = Log(settings)
    asyncio.run(log.create())
    weight = Job(log, tmp_path, keep=1).steps(2)
    (path,) = tmp_path.iterdir()
    path.rename(path.with_name(path.name + ".partial"))
    job = Job(log, tmp_path)
    with job.open() as stream:
        assert job.checkpoints.load(stream)
    assert job.model.weight.item() == weight


def test_weights_that_were_never_published_are_published_at_a_resume(log: Log, tmp_path: Path) -> None:
    """Workers can't read a checkpoint."""
    job = Job(log, tmp_path)
    job.settings = with_trainer(job.settings, sync_period=2)
    with job.open() as stream:
        asyncio.run(log.write(*group("a")))
        batch = next(iter(stream))
        torch.nn.init.ones_(job.model.weight)
        batch.trained(checkpoint=lambda: job.checkpoints.save(stream, batch))
    with pytest.raises(SettingsError, match="step 1 were never published"):
        job.open()
    published: list[tuple[Policy, float]] = []

    def publish(policy: Policy) -> tuple[str, str]:
        published.append((policy, model.weight.item()))
        return "s3://w/1:1", "d"

    model = torch.nn.Linear(1, 1, bias=False)
    folder = CheckpointFolder(tmp_path, publish=publish, model=model, optimizer=torch.optim.AdamW(model.parameters()))
    with job.open(Start(resume=folder, weights="s3://w/0")) as stream:
        assert stream.history.current == Policy(1, 1)
    assert published == [(Policy(1, 1), 1.0)]
    assert b'"uri":"s3://w/1:1"' in (asyncio.run(log.read(Topic.POLICY_VERSIONS))[-1].value or b"")


def test_a_folder_that_was_moved_is_as_good(log: Log, tmp_path: Path) -> None:
    weight = Job(log, tmp_path / "a").steps(1)
    (tmp_path / "a").rename(tmp_path / "b")
    job = Job(log, tmp_path / "b")
    with job.open() as stream:
        assert job.checkpoints.load(stream)
    assert job.model.weight.item() == weight
