"""`rolloutlog run`: broker, topics and services of a live loop from one file of settings (design/live-loop#run).

    report = await run_live(settings, ["--config", "rolloutlog.toml"], stop=stop)

Guarantees: a run that was stopped, killed or cut off goes on where it was; the broker ends last, and only if it was
started here; one at a time runs in a folder. Leaves out: the services themselves; two machines that run one namespace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rolloutlog.broker import EmbeddedKafka, find
from rolloutlog.broker.install.flock import locked
from rolloutlog.broker.process.data_folder import default_data_dir
from rolloutlog.contract.errors import BrokerFailed, PathUnusable, ServiceFailed
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.settings_sources import address_of
from rolloutlog.supervisor.deaths import RecentDeaths, times
from rolloutlog.supervisor.loop_sources import fed_environments
from rolloutlog.supervisor.loop_work import LoopWork, last_step
from rolloutlog.supervisor.services import ServiceRole, services_of
from rolloutlog.supervisor.supervision import Supervision
from rolloutlog.supervisor.uncut import uncut

log = logging.getLogger(__name__)
LOOK_S = 1.0


@dataclass(slots=True)
class LiveReport:
    """Why it ended (`steps`, `data` or `stopped`), after which train step, and what was started again how often."""

    ended: str
    step: int
    restarts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class Watched:
    """What an onlooker is told: the address of the broker, and the services."""

    bootstrap_servers: str
    supervision: Supervision
    first_step: int
    """The train step that was the last when it started."""


async def run_live(
    settings: Settings,
    flags: Sequence[str],
    logs: Path,
    *,
    steps: int | None = None,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = log.warning,
    watch: Callable[[Watched], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> LiveReport:
    """Run until `stop`, or `steps` more train steps (None: those of `loop.steps`), or the end of all data.

    `flags` are given to each service, which reads the same settings by them; logs of each go to the folder `logs`.
    Raises ServiceFailed, BrokerFailed, SettingsError, PathUnusable, and what creating topics raises.
    """
    stop, steps = stop or asyncio.Event(), steps or settings.loop.steps
    services_of(settings, flags, None)  # what can't work is refused before anything is started
    environments = fed_environments(settings.loop)
    async with AsyncExitStack() as stack:
        stack.enter_context(_held(logs))
        address, broker = _address_of(settings, data_dir), None
        if address is None:
            broker = await stack.enter_async_context(EmbeddedKafka(data_dir or default_data_dir(), fast_start=False))
            address = broker.bootstrap_servers
        reachable = settings.model_copy(update={"bootstrap_servers": address})
        first = await _prepared(reachable)
        to_step = None if steps is None else first + steps
        services = services_of(reachable, [*flags, "--bootstrap-servers", address], to_step)
        feeders = (service.name for service in services if service.role is ServiceRole.FEEDER)
        work = LoopWork(reachable, to_step, dict(zip(feeders, environments, strict=True)))
        supervision = Supervision(
            services, logs, restarts=settings.loop.restarts, tell=tell, has_done=work.has_done, on_death=work.has_died
        )
        watch(Watched(address, supervision, first))
        ended = await _with_broker(supervision, broker, settings.loop.restarts, tell, stop)
        return LiveReport(ended, await last_step(reachable), supervision.started_again)


def _address_of(settings: Settings, data_dir: Path | None) -> str | None:
    """The address given, or of a broker that runs in the data folder on its own; not of one that ends with another run:
    whether that has just died, and may be started again, its start finds out."""
    if settings.bootstrap_servers is not None or settings.command_config is not None:
        return address_of(settings, data_dir)
    found = find(data_dir)
    return None if found is None or found.owner is not None else found.bootstrap_servers


async def _prepared(settings: Settings) -> int:
    """Topics and declaration of the run, if they aren't there; the last train step."""
    connection = await connect(settings, Role.OPERATOR)
    await create_topics(connection, settings)
    await declare(connection, settings)
    return await last_step(settings)


async def _with_broker(
    supervision: Supervision,
    broker: EmbeddedKafka | None,
    restarts: int,
    tell: Callable[[str], None],
    stop: asyncio.Event,
) -> str:
    """Watch services and our broker, if we have one. Services outlast its death, since their clients wait for it."""
    if broker is None:
        return await supervision.run(stop)
    watching = asyncio.create_task(_watch_broker(broker, restarts, tell))
    running = asyncio.create_task(supervision.run(stop))
    try:
        await asyncio.wait({watching, running}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        return await running
    finally:
        watching.cancel()
        running.cancel()
        await uncut(asyncio.wait({watching, running}))


async def _watch_broker(broker: EmbeddedKafka, restarts: int, tell: Callable[[str], None]) -> None:
    """Start it again when it dies. Raises ServiceFailed where it does too often, BrokerFailed where it can't be."""
    clock, deaths = asyncio.get_running_loop().time, RecentDeaths()
    while True:
        await asyncio.sleep(LOOK_S)
        if (why := await asyncio.to_thread(_why_dead, broker)) is not None:
            deaths.add(clock())
            if (count := deaths.count(clock())) > restarts:
                raise ServiceFailed(f"{why}, {times(count)}", "`rolloutlog broker logs` shows what it wrote")
            tell(f"{why}; it starts again")
            await asyncio.to_thread(broker.start, 1)


def _why_dead(broker: EmbeddedKafka) -> str | None:
    try:
        broker.check()
    except BrokerFailed as error:
        return error.message
    return None


@contextmanager
def _held(folder: Path) -> Generator[None]:
    """Make the folder of logs, and hold it: services of two runs would fence each other until all had died too often.

    Raises PathUnusable.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder / "lock", wait=False))
        except BlockingIOError as error:
            hint = "end that one first, or give this one another namespace, or another `training.folder`"
            raise PathUnusable(f"another `rolloutlog run` writes to {folder}", hint) from error
        except OSError as error:
            raise PathUnusable(f"{folder} can't be written: {error.strerror}") from error
        yield
