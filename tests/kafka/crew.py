"""Worker processes of one group, and what chaos does to them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.owners import owners
from rolloutlog.kafka.write.transactions import TransactionalWriter
from tests.producers.log import until

ROOT = Path(__file__).parents[2]
PARTITIONS = 3


class Crew:
    """`size` processes of `module`; those that die are replaced; all end with the block."""

    def __init__(
        self, connection: Connection, size: int, session_ms: int, log: Path, module: str = "tests.kafka.counting"
    ) -> None:
        self._connection, self._size, self._session_ms = connection, size, session_ms
        self._log, self._module = log, module
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.workers = [self._spawn() for _ in range(self._size)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()

    def kill(self, number: int) -> None:
        """SIGKILL one and start another in its place."""
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number] = self._spawn()

    async def freeze(self, number: int) -> None:
        """SIGSTOP one that has worked, and SIGCONT when the group has given all partitions to others: then it is a
        zombie."""
        worker = self.workers[number]
        await until(lambda: self._has_owned(worker), 180)
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            await until(lambda: self._others_own_all(worker), 180, every_s=0.3)
        finally:
            os.kill(worker.pid, signal.SIGCONT)

    def restart(self, number: int) -> None:
        """SIGTERM one, which gives its partitions up, and start another in its place."""
        self.workers[number].terminate()
        self.workers[number].wait(180)
        self.workers[number] = self._spawn()

    async def fence(self, partition: int) -> None:
        """A stranger takes over the writer's name: the owner is fenced in the midst of whatever it does."""
        name = self._connection.names.transactional_id("buffer", partition)
        async with TransactionalWriter(self._connection, name):
            pass

    async def fault(self, chance: random.Random) -> str:
        """One fault, chosen by `chance`; says which."""
        return (await self.faults(chance, 1))[0]

    async def faults(self, chance: random.Random, count: int) -> list[str]:
        """So many faults at once, each of another worker, chosen by `chance`; says which."""
        numbers = chance.sample(range(self._size), count)
        kinds = [chance.choice(("kill", "kill", "freeze", "fence", "restart")) for _ in numbers]
        await asyncio.gather(*map(self._fault, kinds, numbers))
        return [f"{kind} {number}" for kind, number in zip(kinds, numbers, strict=True)]

    async def _fault(self, kind: str, number: int) -> None:
        if kind == "freeze":
            await self.freeze(number)
        elif kind == "fence":
            await self.fence(number % PARTITIONS)
        else:
            await asyncio.to_thread(self.kill if kind == "kill" else self.restart, number)

    def stop(self) -> list[int]:
        """SIGTERM to all, once each has joined; their exit codes."""
        deadline = time.monotonic() + 180
        while not all(self._has_owned(worker) for worker in self.workers):
            assert time.monotonic() < deadline, "a worker never joined"
            time.sleep(0.1)
        for worker in self.workers:
            worker.terminate()
        return [worker.wait(180) for worker in self.workers]

    def check(self) -> None:
        """Every worker lives."""
        dead = [worker.returncode for worker in self.workers if worker.poll() is not None]
        assert not dead, f"workers ended with {dead}: {self._log.read_text()[-4000:]}"

    def _has_owned(self, worker: subprocess.Popen[bytes]) -> bool:
        return f"{worker.pid} owns" in self._log.read_text()

    async def _others_own_all(self, worker: subprocess.Popen[bytes]) -> bool:
        members = await owners(self._connection, ["buffer"])
        owned = sum(len(member.partitions) for member in members)
        return owned == PARTITIONS and not any(member.client.endswith(f"-{worker.pid}") for member in members)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", self._module, self._connection.bootstrap_servers]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, self._connection.names.namespace, str(self._session_ms)], cwd=ROOT, stdout=log, stderr=log
            )
