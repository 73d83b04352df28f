"""The worker: takes seeds, makes their members, and says how each ended."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.cli.metrics_port import Metrics
from rolloutlog.cli.pacing_metrics import tell_worker
from rolloutlog.contract.errors import SettingsError, TopicMissing
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.events.seeds import Ask, Seed, seed_cancelled_event
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, SeedKind, Status
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.workers.environment import Dispatch, load
from rolloutlog.producers.workers.rollout_worker import Endings, Worker, WorkerLack, run_worker
from tests.cases.rollouts import sound
from tests.producers.log import emit, everything, seed_of, until
from tests.producers.sums import Digits, Sums

ROOT = Path(__file__).parents[2]
SESSION_MS = 1500
DATA = {EventType.ROLLOUT_COMPLETED, EventType.ROLLOUT_ABORTED, EventType.ROLLOUT_FAILED}


async def data(settings: Settings) -> list[Event]:
    return [event for event in await everything(settings) if event.headers.type in DATA]


async def work(
    settings: Settings, environment: Sums, until_: Callable[[], bool] | int, *, concurrency: int = 8, grace_s: float = 5
) -> Endings:
    """Run a worker until that holds, or until so many data records are on the log; then drain it."""
    stop = asyncio.Event()
    running = asyncio.create_task(
        run_worker(
            settings,
            environment,
            Digits(),
            concurrency=concurrency,
            name="w",
            grace_s=grace_s,
            stop=stop,
            session_timeout_ms=SESSION_MS,
        )
    )

    async def holds() -> bool:
        if running.done():
            running.result()
        return len(await data(settings)) >= until_ if isinstance(until_, int) else until_()

    try:
        await until(holds)
    finally:
        stop.set()
        endings = await running
    return endings


@pytest.mark.broker
async def test_a_worker_makes_every_member_of_a_seed_once(settings: Settings) -> None:
    async with PolicyPublisher(settings) as policies:
        await policies.publish(3)
        tasks = [{"sum": f"{n}+{n}?", "answer": str(2 * n), "act": "brief"} for n in range(6)]
        await emit(settings, *(seed_of(f"g{n}", group_size=3, task=task) for n, task in enumerate(tasks)))
        environment = Sums()
        endings = await work(settings, environment, 18, concurrency=4)
    assert endings == {"completed": 18}
    assert environment.most == 4
    events = await data(settings)
    assert Counter(event.headers.group for event in events) == {f"g{n}": 3 for n in range(6)}
    for event in events:
        read_headers(event, 3)
        rollout = read_rollout(event)
        assert (rollout.status, rollout.trajectory.reward) == (Status.COMPLETED, 1.0)
        assert rollout.slot.origin_seed == f"seed-{rollout.slot.group}"
        assert rollout.slot.run == settings.run_id
        assert rollout.slot.dispatch_step == 4, "what follows policy 3"
        assert rollout.trajectory.policy_span == (Policy(0, 3), Policy(0, 3))
        assert (event.headers.source or "").startswith("/workers/w-")


@pytest.mark.broker
async def test_a_second_run_repeats_nothing(settings: Settings) -> None:
    await emit(settings, seed_of("g"))
    await work(settings, Sums(), 2)
    again = Sums()
    await emit(settings, seed_of("h"))
    await work(settings, again, 4)
    assert {dispatch.seed.group for dispatch in again.dispatched} == {"h"}


@pytest.mark.broker
async def test_whatever_an_environment_does_its_members_end(settings: Settings) -> None:
    """Failed with the error; refused cancels the seed's members; a trajectory that breaks the contract is a failure."""
    await emit(settings, *(seed_of(act, task={"act": act}) for act in ("fail", "bad", "refuse")))
    environment = Sums()

    def ended() -> bool:
        return len(environment.dispatched) == 6 and not environment.running

    endings = await work(settings, environment, ended)
    assert endings == {"failed": 4, "refused": 1, "dropped": 1}
    by_group = {event.headers.group: read_rollout(event) for event in await data(settings)}
    assert by_group.keys() == {"fail", "bad"}
    (error,) = by_group["fail"].trajectory.record["errors"]
    assert error == {"type": "RuntimeError", "message": "the sandbox is gone"}
    (error,) = by_group["bad"].trajectory.record["errors"]
    assert error["type"] == "InvalidRecord"
    assert "segments" in error["message"]
    (event,) = await everything(settings, kind=EventType.GROUP_CANCELLED)
    assert (event.headers.group, event.headers.reason) == ("refuse", "refused")
    assert read_cancelled(event).members == (0, 1)


class Slow(Sums):
    """All but the first member of a group wait."""

    async def _act(self, act: str, dispatch: Dispatch, prompt: list[int]) -> None:
        await super()._act("wait" if dispatch.slot.member else act, dispatch, prompt)


@pytest.mark.broker
async def test_a_member_is_on_the_log_once_it_ends_while_its_siblings_run(settings: Settings) -> None:
    await emit(settings, seed_of("g", group_size=3))
    environment = Slow()
    endings = await work(settings, environment, 1, grace_s=0.1)
    assert endings == {"completed": 1, "aborted": 2}
    assert environment.most == 3


@pytest.mark.broker
async def test_a_stop_gives_back_what_runs_with_its_prefix_and_what_waits_without(settings: Settings) -> None:
    await emit(settings, seed_of("g", group_size=4, task={"act": "wait"}))
    environment = Sums()
    endings = await work(settings, environment, lambda: environment.running == 2, concurrency=2, grace_s=0.1)
    assert endings == {"aborted": 4}
    rollouts = [read_rollout(event) for event in await data(settings)]
    assert {rollout.status for rollout in rollouts} == {Status.ABORTED}
    assert {rollout.slot.member for rollout in rollouts} == {0, 1, 2, 3}
    assert sorted(len(rollout.trajectory.token_ids) for rollout in rollouts) == [0, 0, 4, 4]


@pytest.mark.broker
async def test_a_stop_lets_what_runs_finish_within_its_grace(settings: Settings) -> None:
    await emit(settings, seed_of("g", task={"act": "brief"}))
    environment = Sums()
    endings = await work(settings, environment, lambda: environment.running == 2)
    assert endings == {"completed": 2}


@pytest.mark.broker
async def test_a_cancelled_seed_is_dropped_and_nothing_is_written(settings: Settings) -> None:
    await emit(settings, seed_of("g", task={"act": "hang"}), seed_of("h"))
    environment = Sums()
    cancel = seed_cancelled_event(
        seed="seed-g", group="g", group_size=2, reason="attempts", source="/tests", now=now_ms()
    )

    async def soon() -> None:
        await until(lambda: environment.running == 2)
        async with Writer(connection_of(settings)) as writer:
            await writer.send(cancel)

    cancelling = asyncio.create_task(soon())
    done = asyncio.Event()

    def ended() -> bool:
        if cancelling.done() and not environment.running and len(environment.dispatched) == 4:
            done.set()
        return done.is_set()

    endings = await work(settings, environment, ended)
    await cancelling
    assert endings == {"completed": 2, "dropped": 2}
    assert {event.headers.group for event in await data(settings)} == {"h"}


@pytest.mark.broker
async def test_a_resume_seed_brings_the_prefix(settings: Settings) -> None:
    """The engine gets token ids, never re-rendered text (design/groups#resuming)."""
    async with RolloutProducer(settings) as producer:
        aborted = await producer.abort(sound("g").slot, sound("g").trajectory)
    origin = seed_of("g", messages=[{"role": "user", "content": "2?"}], snapshot={"image": "sha256:1"})
    await emit(settings, origin)
    (event,) = await everything(settings, Topic.SEEDS)
    seed = Seed(
        id="resume",
        kind=SeedKind.RESUME,
        group="g",
        group_size=2,
        env="sums",
        asks=[Ask(member=0, attempt=2)],
        origin_seed="seed-g",
        origin_offset=event.offset,
        prefix=str(aborted.handle),
    )
    await emit(settings, seed)
    environment = Sums()
    await work(settings, environment, 4)
    (dispatch,) = (one for one in environment.dispatched if one.ask.attempt == 2)
    assert dispatch.prefix == read_rollout(next(iter(await data(settings)))).trajectory
    assert (dispatch.seed.task, dispatch.seed.messages) == (origin.task, origin.messages), "the group's own"
    assert dispatch.seed.snapshot == origin.snapshot
    rollouts = [read_rollout(event) for event in await data(settings)]
    (made,) = (one for one in rollouts if one.slot.attempt == 2)
    assert (made.status, made.slot.origin_seed, made.slot.origin_offset) == (Status.COMPLETED, "seed-g", 0)
    record = made.trajectory.record
    assert record["task"] == origin.task
    assert "resumed_from" not in record, "this environment starts anew"


@pytest.mark.broker
async def test_a_member_whose_task_is_gone_fails(settings: Settings) -> None:
    """An environment is never asked to make something without being told what."""
    await emit(
        settings,
        Seed(
            id="again",
            kind=SeedKind.REROLL,
            group="g",
            group_size=2,
            env="sums",
            asks=[Ask(member=1, attempt=2)],
            origin_seed="seed-g",
            origin_offset=17,
        ),
    )
    environment = Sums()
    assert await work(settings, environment, 1) == {"failed": 1}
    assert not environment.dispatched
    (rollout,) = [read_rollout(event) for event in await data(settings)]
    (error,) = rollout.trajectory.record["errors"]
    assert error["type"] == "NotFound"


@pytest.mark.broker
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize(("number", "says"), [(signal.SIGTERM, "{'aborted': 2}"), (signal.SIGINT, "interrupted")])
def test_a_signal_leaves_no_seed_to_its_lease(
    settings: Settings, number: signal.Signals, says: str, concurrency: int
) -> None:
    """SIGTERM drains and exits 0; Ctrl-C doesn't wait for what runs. Both publish what was sampled, and give back a
    member that waits for room (design/commands#signals)."""
    program = f"""
        import asyncio
        from rolloutlog.contract.settings import Settings
        from rolloutlog.producers.workers.environment import load
        from rolloutlog.producers.workers.rollout_worker import run_worker

        settings = Settings.model_validate_json({settings.model_dump_json(exclude_unset=True)!r})
        options = {{"grace_s": {0.2 if number == signal.SIGTERM else 600}, "concurrency": {concurrency}}}
        try:
            print(dict(asyncio.run(run_worker(settings, load("tests.producers.sums:Sums"), **options))))
        except KeyboardInterrupt:
            print("interrupted")
    """

    async def body() -> None:
        await emit(settings, seed_of("g", task={"act": "wait"}))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            textwrap.dedent(program),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

        async def renewed() -> bool:
            return len(await everything(settings, kind=EventType.SEED_TAKEN)) > 1

        await until(renewed)  # so its members run
        process.send_signal(number)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, err.decode(), out.decode()) == (0, "", says + "\n")
        rollouts = [read_rollout(event) for event in await data(settings)]
        assert [rollout.status for rollout in rollouts] == [Status.ABORTED] * 2
        assert [len(rollout.trajectory.token_ids) for rollout in rollouts].count(4) == concurrency

    asyncio.run(body())


@pytest.mark.broker
async def test_a_worker_tells_what_it_makes_and_why_it_takes_no_seed(settings: Settings) -> None:
    """As `--metrics-port` serves it (design/commands#metrics)."""
    begun, stop, told = list[Worker](), asyncio.Event(), Metrics()
    how: dict[str, Any] = {"grace_s": 0.1, "stop": stop, "session_timeout_ms": SESSION_MS}
    working = asyncio.create_task(run_worker(settings, Sums(), Digits(), concurrency=2, **how, on_start=begun.append))

    def lacks(lack: WorkerLack) -> bool:
        tell_worker(told, next(iter(begun), None), most=2)
        return told.numbers["worker_lacks", lack] == 1

    assert lacks(WorkerLack.WEIGHTS)
    await until(lambda: lacks(WorkerLack.SEED))
    await emit(settings, seed_of("brief", group_size=2))
    await until(lambda: lacks(WorkerLack.SEED) and begun[0].endings["completed"] == 2)
    await emit(settings, seed_of("long", group_size=2, task={"act": "wait"}))
    await until(lambda: lacks(WorkerLack.ROOM))
    assert told.numbers["worker_members_by_ending_total", "completed"] == 2
    assert told.numbers["worker_members", ""] == told.numbers["worker_members_most", ""] == 2
    stop.set()
    assert await working == {"completed": 2, "aborted": 2}
    tell_worker(told, begun[0], most=2)
    assert told.numbers["worker_members_by_ending_total", "aborted"] == 2


def test_what_has_no_method_to_make_rollouts_is_refused_before_it_takes_a_seed() -> None:
    with pytest.raises(SettingsError, match="has no method rollout"):
        load("json:loads", "rollout")
    assert load("tests.producers.sums:Sums", "rollout")


@pytest.mark.broker
def test_a_worker_of_no_run_says_so(undeclared: Settings) -> None:
    with pytest.raises(TopicMissing):
        asyncio.run(run_worker(undeclared, Sums()))


def test_an_environment_is_named_by_module_and_attribute() -> None:
    assert type(load("tests.producers.sums:Sums")).__name__ == "Sums"
    for path in ("tests.producers.sums", "tests.producers.sums:Nothing", "no.such.module:x", ":x"):
        with pytest.raises(SettingsError, match=path):
            load(path)
