"""A derivation of somebody else: found by entry point, and of no more concern to the buffer than its hooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, Literal

import orjson
import pytest
from pydantic import ValidationError

from rolloutlog.buffer.derivations.protocol import AnchorPoint, DerivationSection
from rolloutlog.contract import derivation_types
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import DerivationSettings, Settings
from rolloutlog.contract.topics import Topic
from tests.buffer.events_by_hand import annotated, rollout
from tests.buffer.partition_log import Owner, PartitionLog, settings_of


class Retry(DerivationSection):
    """Ask the first question again, with a word of caution."""

    type: Literal["retry"] = "retry"
    word: str = "carefully"

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> Iterable[AnchorPoint]:
        if trajectory.record.get("task") == {"breaks": True}:
            raise KeyError("nothing to retry")
        return [AnchorPoint("retry", 0, 7)]

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        return [trajectory.messages[anchor.node] or {}, {"role": "user", "content": self.word}]


OFFERED = [
    ("retry", "Retry"), ("gone", "Gone"), ("odd", "rollout"), ("half", "Half"), ("other", "Other"), ("rude", "Rude"),
    ("sided", "Sided"),
    ("twice", "Retry"), ("twice", "Half"),
]  # fmt: skip


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if a package with these entry points were there."""
    known = derivation_types.entry_points
    mine = [EntryPoint(name, f"tests.buffer.test_plug_in:{value}", derivation_types.GROUP) for name, value in OFFERED]

    def found(**chosen: Any) -> EntryPoints:
        return EntryPoints([*known(group=derivation_types.GROUP), *mine]).select(**chosen)

    monkeypatch.setattr(derivation_types, "entry_points", found)
    derivation_types.derivation_type.cache_clear()
    yield
    derivation_types.derivation_type.cache_clear()


def settings(**derive: Any) -> Settings:
    given = [{"name": "again", "derive": {"type": "retry", **derive}}]
    return settings_of(buffer={"derivations": given})


@pytest.mark.usefixtures("installed")
def test_its_settings_are_settings_like_ours_and_come_back_from_their_dump() -> None:
    """decisions/replay#20."""
    told = settings(word="slowly")
    assert told.buffer.derivations[0].derive.model_dump() == {"type": "retry", "word": "slowly"}
    assert Settings.model_validate_json(told.model_dump_json()).digest == told.digest != settings().digest


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("derive", "message"),
    [
        ({"type": "retry", "words": "x"}, "words: Extra inputs are not permitted"),
        (
            {"type": "imagine"},
            "no derivation of type 'imagine' is installed; there are continue, gone, half, judge, odd, ",
        ),
        ({"type": "half"}, "has no anchors and no prompt"),
        ({"type": "other"}, "must have a field `type` of that name"),
        ({"type": "twice"}, "two packages offer a derivation 'twice'"),
        ({"type": "gone"}, "can't be loaded from tests.buffer.test_plug_in:Gone"),
        ({"type": "odd"}, "isn't a Section of settings"),
        ({"type": 3}, "`type` says which derivation it is"),
    ],
)
def test_what_is_wrong_with_it_is_said_where_settings_are_read(derive: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DerivationSettings.model_validate({"name": "again", "derive": derive})


@pytest.mark.usefixtures("installed")
def test_it_seeds_as_ours_do() -> None:
    log = PartitionLog(settings(word="slowly"))
    log.append(rollout("a", 0), rollout("a", 1))
    Owner(log).settle()
    seed = log.seeds[0]
    assert (seed.kind, seed.derivation, seed.tokens) == ("retry", "again", 7)
    assert seed.anchor is not None
    assert (seed.anchor.kind, seed.anchor.node) == ("retry", 0)
    assert seed.messages is not None
    assert seed.messages[-1] == {"role": "user", "content": "slowly"}


@pytest.mark.usefixtures("installed")
def test_what_it_raises_is_told_of_it_alone_and_others_derive() -> None:
    """Whatever a derivation raises is a dead letter for that derivation alone (design/buffer#hostile-json)."""
    given = [{"name": "again", "derive": {"type": "retry"}}, {"name": "check", "derive": {"type": "recheck"}}]
    log = PartitionLog(settings_of(buffer={"derivations": given}))
    log.append(*(rollout("a", member, record={"task": {"breaks": True}}) for member in range(2)))
    Owner(log).settle()
    assert {seed.derivation for seed in log.seeds} == {"check"}
    letters = [orjson.loads(event.value or b"") for event in log.topics[Topic.DEAD_LETTERS]]
    assert len(letters) == 2
    letter = letters[0]
    assert letter["derivation"] == "retry"
    assert "nothing to retry" in letter["detail"]


class Half(DerivationSection):
    """Without hooks."""

    type: Literal["half"] = "half"


class Other(Retry):
    """Not of the name that it is offered under."""


class Rude(Retry):
    """Raises what no one expects."""

    type: Literal["rude"] = "rude"  # type: ignore[assignment]
    late: bool = False

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> Iterable[AnchorPoint]:
        return [AnchorPoint("rude", 0, 7)]

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        raise RuntimeError("boom")


@pytest.mark.usefixtures("installed")
def test_one_that_raises_what_nobody_expects_is_told_and_the_shard_goes_on() -> None:
    """Whatever a derivation raises, in either hook (design/buffer#hostile-json)."""
    given = [{"name": "again", "derive": {"type": "rude"}}, {"name": "check", "derive": {"type": "recheck"}}]
    log = PartitionLog(settings_of(buffer={"derivations": given}))
    log.append(rollout("a", 0), rollout("a", 1))
    Owner(log).settle()
    assert {seed.derivation for seed in log.seeds} <= {"check"}
    assert log.reasons
    assert set(log.reasons) == {"derivation"}


class Sided(Retry):
    """Balanced, and fails in one hook of one's choice."""

    type: Literal["sided"] = "sided"  # type: ignore[assignment]
    fails: str = ""

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> Iterable[AnchorPoint]:
        node: Any = trajectory.record.get("at", 0)
        return [AnchorPoint("sided", node, 7)]

    def _fail(self, hook: str) -> None:
        if hook == self.fails:
            raise RuntimeError(f"boom in {hook}")

    @property
    def needs_environment(self) -> bool:
        self._fail("needs_environment")
        return True

    def takes(self, anchor: AnchorPoint) -> bool:
        self._fail("takes")
        return super().takes(anchor)

    def tokens(self, anchor: AnchorPoint) -> int:
        self._fail("tokens")
        return super().tokens(anchor)

    def was_right(self, reward: float) -> bool:
        self._fail("was_right" if reward != 0.25 else "late")
        return reward > 0.5


def sided(**derive: Any) -> Settings:
    given = [{"name": "again", "derive": {"type": "sided", **derive}}, {"name": "check", "derive": {"type": "recheck"}}]
    return settings_of(buffer={"derivations": given})


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("hook", ["takes", "tokens", "was_right"])
def test_any_hook_that_raises_is_told_once_a_record_and_a_restart_asks_it_no_more(hook: str) -> None:
    """As `anchors` is: a fault of that derivation alone (design/buffer#hostile-json)."""
    log = PartitionLog(sided(fails=hook))
    log.append(rollout("a", 0), rollout("a", 1))
    Owner(log).settle()
    Owner(log).settle()
    assert {seed.derivation for seed in log.seeds} == {"check"}
    letters = [orjson.loads(event.value or b"") for event in log.topics[Topic.DEAD_LETTERS]]
    assert [(letter["derivation"], f"boom in {hook}" in letter["detail"]) for letter in letters] == [
        ("sided", True)
    ] * 2


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("node", ["first", -1, 10_000, 2**40, None])
def test_an_anchor_that_is_none_is_a_fault_of_its_derivation(node: Any) -> None:
    """It once made the whole record a rejected one: no row can hold it."""
    log = PartitionLog(sided())
    log.append(rollout("a", 0, record={"at": node}), rollout("a", 1, record={"at": node}))
    Owner(log).settle()
    assert {seed.derivation for seed in log.seeds} == {"check"}
    assert log.reasons == ["derivation", "derivation"]


@pytest.mark.usefixtures("installed")
def test_a_late_reward_on_which_it_fails_is_of_neither_side() -> None:
    """Nobody's row could tell (design/buffer#hostile-json)."""
    log = PartitionLog(sided(fails="late"))
    log.append(rollout("a", 0, reward=1.0), rollout("a", 1, reward=0.0))
    owner = Owner(log)
    owner.read(Topic.ROLLOUTS)
    assert len(owner.shard.fold.pool.live) == 4
    log.append(annotated("a", 1, reward=0.25))
    owner.read(Topic.ROLLOUTS)
    assert len(owner.shard.fold.pool.live) == 2


@pytest.mark.usefixtures("installed")
def test_one_that_fails_before_any_record_is_refused_at_start() -> None:
    log = PartitionLog(sided(fails="needs_environment"))
    with pytest.raises(SettingsError, match=r"derivation again fails before any record: .*boom in needs_environment"):
        Owner(log)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("hook", ["anchors", "prompt"])
def test_a_process_without_memory_blames_no_record(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row lasts: what it says of a record must not depend on the machine that folded it (design/buffer#fold)."""

    def starve(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Retry, hook, starve)
    log = PartitionLog(settings())
    log.append(rollout("a", 0), rollout("a", 1))
    with pytest.raises(MemoryError):
        Owner(log).settle()
    assert not log.reasons


def test_a_name_of_another_type_is_refused() -> None:
    """`name = "judge"` alone would continue, for the life of the run."""
    with pytest.raises(ValidationError, match="judge would continue"):
        DerivationSettings.model_validate({"name": "judge"})
