"""`SyncGroupStream`, for loops that aren't asynchronous (design/trainer#sync)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.contract.errors import NotOpen, SettingsError
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.trainer.log import Log
from tests.trainer.test_stream import group, names, with_trainer

pytestmark = pytest.mark.broker

PROCESS = Path(__file__).with_name("sync_trainer_process.py")


def weights() -> tuple[str, str]:
    return "s3://w", "d"


def test_a_loop_trains_what_comes_and_publishes_what_its_callables_wrote(log: Log) -> None:
    written: list[str] = []

    def publish() -> tuple[str, str]:
        written.append("weights")
        return f"s3://w/{len(written)}", "d"

    settings = with_trainer(log.settings, batch_groups=1)
    with SyncGroupStream(settings, Start(weights="s3://w/0")) as stream:
        asyncio.run(log.write(*group("a"), *group("b")))
        for batch in stream.batches(drain=True):
            assert batch.publishes
            assert stream.state_dict(batch)["step"] == batch.step
            assert all(member.rollout for member in batch.members)
            report = batch.trained(publish=publish, checkpoint=lambda step=batch.step: (f"file:///{step}", "c"))
            assert report.step == len(written)
            with pytest.raises(ValueError, match="recorded before"):
                batch.trained(publish=weights)
        assert stream.history.current == Policy(0, 2)
    with pytest.raises(NotOpen):
        stream.batches()
        next(iter(stream))
    assert sorted(final.group for final in asyncio.run(log.finals())) == sorted(map(id_of, "ab"))
    types = [str(event.headers.type) for event in asyncio.run(log.read(Topic.POLICY_VERSIONS))]
    step = ["policy.published", "checkpoint.saved"]
    assert types == ["timeline.started", "policy.published", *step, *step]


@pytest.mark.parametrize("returned", [None, "w1", ("w",), 7])
def test_a_callable_that_returns_no_pair_leaves_the_batch_as_it_was(log: Log, returned: Any) -> None:
    """None would tell a step without the weights that are due, and a text of two letters would pass for a pair."""
    settings = with_trainer(log.settings, batch_groups=1)
    with SyncGroupStream(settings) as stream:
        asyncio.run(log.write(*group("a")))
        batch = next(iter(stream))
        with pytest.raises(SettingsError, match="publish returned"):
            batch.trained(publish=lambda: returned)
        with pytest.raises(SettingsError, match="checkpoint returned"):
            batch.trained(publish=weights, checkpoint=lambda: returned)
        batch.trained(publish=weights)
    assert len(asyncio.run(log.finals())) == 1


def test_what_a_callable_raises_leaves_the_batch_as_it_was(log: Log) -> None:
    def full() -> tuple[str, str]:
        raise OSError("no space")

    with SyncGroupStream(log.settings) as stream:
        asyncio.run(log.write(*group("a"), *group("b")))
        batch = next(iter(stream))
        with pytest.raises(OSError, match="no space"):
            batch.trained(publish=full)
        assert batch.trained(publish=weights, without={id_of("b"): DropReason.NO_TOKEN}).groups == 1
    reasons = {final.group: final.reason for final in asyncio.run(log.finals())}
    assert reasons == {id_of("a"): None, id_of("b"): DropReason.NO_TOKEN}


def test_the_next_batch_is_drawn_while_one_is_trained_and_goes_back_with_it(log: Log) -> None:
    settings = with_trainer(log.settings, batch_groups=1, staleness={"max_staleness": "none"})
    with SyncGroupStream(settings) as stream:
        asyncio.run(log.write(*group("a"), *group("b")))
        batches = iter(stream)
        first = next(batches)
        drawn = 0
        while stream.step != 3:
            drawn += 1
            assert drawn < 10_000_000, "the second was never drawn"
        again = next(batches)
        assert (again.step, names(again.batch)) == (1, names(first.batch)), "untold, it went back"
        again.trained(publish=weights)
        second = next(batches)
        assert (second.step, names(second.batch) | names(first.batch)) == (2, {id_of("a"), id_of("b")})
        second.trained(publish=weights)


SIGNALS = [(signal.SIGINT, moment) for moment in ("waiting", "training", "telling")] + [
    (signal.SIGTERM, "telling"),
    (signal.SIGKILL, "telling"),
]


@pytest.mark.parametrize(("number", "moment"), SIGNALS)
def test_a_signal_leaves_no_step_half_told(log: Log, number: int, moment: str) -> None:
    """Ctrl-C, SIGTERM and SIGKILL at any time: a step is there whole or not at all, and the next trainer goes on."""
    settings = with_trainer(log.settings, batch_groups=2)
    asyncio.run(log.bring(0))
    asyncio.run(log.write(*(record for name in "abcd" for record in group(name))))
    command = [sys.executable, str(PROCESS), moment, settings.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == moment
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (-number, 130), said
    with SyncGroupStream(settings) as stream:
        for batch in stream.batches(drain=True):
            batch.trained()
    finals = asyncio.run(log.finals())
    assert sorted(final.group for final in finals) == sorted(map(id_of, "abcd"))


def test_weights_are_published_where_they_are_due_and_nowhere_else(log: Log) -> None:
    """Every sync period; a missed one raises, as one that isn't due does unless it is asked for."""
    settings = with_trainer(log.settings, batch_groups=1, sync_period=2, staleness={"max_staleness": "none"})
    with SyncGroupStream(settings) as stream:
        asyncio.run(log.write(*(record for name in "abc" for record in group(name))))
        batches = stream.batches()
        first = next(batches)
        assert not first.publishes
        with pytest.raises(SettingsError, match="aren't due after step 1"):
            first.trained(publish=weights)
        first.trained(publish=weights, early=True)
        second = next(batches)
        assert second.publishes
        with pytest.raises(SettingsError, match="are due after step 2"):
            second.trained()
        second.trained(publish=weights)
        next(batches).trained()
        assert stream.history.current == Policy(0, 2)


def test_weights_are_due_at_the_end(log: Log) -> None:
    """The last step publishes, whatever the sync period; untold it comes again, and nothing comes after it."""
    settings = with_trainer(log.settings, batch_groups=1, sync_period=5, staleness={"max_staleness": "none"})
    asyncio.run(log.write(*(record for name in "abc" for record in group(name))))
    with SyncGroupStream(settings) as stream:
        due = list[tuple[int | None, bool]]()
        for batch in stream.batches(last_step=2):
            due.append((batch.step, batch.publishes))
            if due.count(due[-1]) == 1 and batch.publishes:
                continue
            batch.trained(publish=weights if batch.publishes else None)
        assert due == [(1, False), (2, True), (2, True)]
        assert not list(stream.batches(last_step=2))
        assert stream.history.current == Policy(0, 2)


def test_weights_are_due_before_the_trainer_would_wait_for_them_alone(log: Log) -> None:
    """The next step would find all too old that the current policy samples: here since the sync period was changed."""
    for step, (period, version, publishes) in enumerate([(9, 0, True), (9, 1, False), (2, 1, True)], start=1):
        settings = with_trainer(log.settings, batch_groups=1, sync_period=period, staleness={"max_staleness": 0})
        asyncio.run(log.write(*group(f"g{step}", version)))
        with SyncGroupStream(settings) as stream:
            batch = next(iter(stream))
            assert (batch.step, batch.publishes) == (step, step == 3)
            batch.trained(publish=weights if publishes else None, early=True)
            assert stream.history.current == Policy(0, step if publishes else version)
