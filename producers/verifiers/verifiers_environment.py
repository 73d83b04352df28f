"""An environment of `verifiers` 0.4 as a worker's, unchanged (design/live-loop#verifiers).

    import verifiers.v1 as vf
    config = vf.SingleAgentEnvConfig(taskset={"id": "my_taskset"}, agent={"runtime": {"type": "subprocess"}})
    environment = VerifiersEnvironment(vf.load_environment(config))

Guarantees: its own harness plays, its own rubric scores, fresh tasks and derived ones alike: a derived seed's messages
are the task's prompt, so what the policy says is judged by the innermost task's rewards, and the seeded part is
context. What an engine raised gives the member back. Leaves out: episodes of several traces; resuming in the middle of
one, which starts anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any, Self, cast

from rolloutlog.contract.errors import EpisodeFailed, MissingExtra, SettingsError
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.environments.task_environment import Task
from rolloutlog.producers.verifiers.chat_endpoint import ChatEndpoint, ChatSession
from rolloutlog.producers.verifiers.trace_nodes import nodes_of
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.engine_answer import sampled_with
from rolloutlog.producers.workers.environment import Dispatch, Refused


class VerifiersEnvironment:
    """Plays episodes of `env`, an object of `verifiers.v1.Env`."""

    def __init__(self, env: Any, name: str | None = None) -> None:
        """`name` is what seeds call it, the environment's id unless given. Raises MissingExtra."""
        try:
            self._library: Any = import_module("verifiers.v1")
        except ModuleNotFoundError as error:
            raise MissingExtra("verifiers", "verifiers") from error
        self._env = env
        self.name: str = name or env.config.env_id
        self._stack = AsyncExitStack()
        self._endpoint: ChatEndpoint | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._env.serving())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._endpoint = None
        await self._stack.aclose()

    def has(self, name: str) -> bool:
        """Whether seeds of that environment are its own."""
        return name == self.name

    def tasks(self, seed: int) -> Iterator[Task]:
        """Its tasks in the order of the taskset; `seed` changes nothing."""
        del seed
        for task in self._env.taskset:
            yield {"key": task.key, "data": task.data.model_dump(mode="json", exclude_none=True)}

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        """One episode. Raises EpisodeFailed, Refused, and what the engine raised."""
        if engine is None:
            raise SettingsError("an environment of verifiers needs an engine", "give --engine")
        if self._endpoint is None:
            self._endpoint = await self._stack.enter_async_context(ChatEndpoint(engine))
        endpoint, task, names = self._endpoint, self._task(dispatch.seed), list[str]()

        def begun(trace: Any) -> None:
            names.append(trace.id)
            endpoint.begin(trace.id, dispatch.seed.budget)

        try:
            episode = await self._env.run_episode(task, self._context(engine), on_trace=begun)
        finally:
            sessions = {name: endpoint.take(name) for name in names}
        for session in sessions.values():
            if session.error is not None:
                raise session.error
        return self._trajectory(episode, sessions, engine)

    def _task(self, seed: Seed) -> Any:
        """The seed's task, with the messages to go on from as its prompt."""
        kind: Any = cast("Any", type(self._env.taskset)).task_type()
        data: Any = kind.data_type().model_validate((seed.task or {}).get("data") or {})
        if seed.messages:
            if kind.NEEDS_CONTAINER or data.image is not None:
                raise Refused("a task in a container can't be restored from a conversation")
            prompt = [_to_library(message) for message in seed.messages]
            given = {**data.model_dump(mode="json"), "prompt": prompt, "system_prompt": None}
            data = kind.data_type().model_validate(given)
        return kind(data, self._env.taskset.config.task)

    def _context(self, engine: Engine) -> Any:
        if self._endpoint is None:
            raise SettingsError("this environment isn't open")
        client = self._library.EvalClientConfig(base_url=self._endpoint.url, api_key_var="ROLLOUTLOG_NO_KEY")
        temperature = getattr(engine, "temperature", None)
        return self._library.ModelContext(
            model="policy", client=client, sampling=self._library.SamplingConfig(temperature=temperature)
        )

    def _trajectory(self, episode: Any, sessions: dict[str, ChatSession], engine: Engine) -> Trajectory:
        if errors := [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]:
            raise EpisodeFailed(f"{errors[0].type}: {errors[0].message}", "it is the environment's own error")
        if len(episode.traces) != 1:
            raise EpisodeFailed(f"an episode of {len(episode.traces)} traces", "environments of one agent are played")
        (trace,) = episode.traces
        nodes = nodes_of(trace, sessions[trace.id].turns, sampled_with(engine))
        rewards = {name: {"score": each.score, "weight": each.weight} for name, each in trace.rewards.items()}
        record = {
            "reward": sum(each["score"] * each["weight"] for each in rewards.values()),
            "rewards": rewards,
            "metrics": dict(trace.metrics),
            "stop_condition": trace.stop_condition or "stop",
            "info": {"verifiers": {"version": trace.verifiers.version, "trace": trace.id}},
        }
        return Trajectory.build(nodes, record)


def _to_library(message: dict[str, Any]) -> dict[str, Any]:
    """A message as the library has it: flat tool calls."""
    if not message.get("tool_calls"):
        return message
    calls = [{"id": call["id"], **call["function"]} for call in message["tool_calls"]]
    return message | {"tool_calls": calls}
