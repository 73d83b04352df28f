"""Answers that a limit cut: they train, leave the loss, or fill up the group (design/staleness#truncated)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.consumers.audit.mask_check import check_masks
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.record.truncation import is_cut
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, Verdict
from rolloutlog.kafka.run_record import read_run
from rolloutlog.trainer.batches.advantages import group_advantages
from rolloutlog.trainer.dispatch.batch import DrawnGroup
from rolloutlog.trainer.dispatch.decision import Drop, Ready, Waiting
from rolloutlog.trainer.dispatch_service import run_dispatch
from rolloutlog.trainer.stream.group_view import groups_view
from tests.trainer.desk import SEED, Desk, rollout
from tests.trainer.drawing import drawn_group
from tests.trainer.log import Log


def cut(member: int, *, size: int = 3, group: str = "g", version: int = 4, **facts: Any) -> Rollout:
    """A rollout whose record says these facts; a limit cut it unless they say otherwise."""
    return Rollout.flat(
        prompt_ids=[1, 2], response_ids=[10, 11], logprobs=[-0.5, -0.5], versions=version, reward=float(member),
        group=group, member=member, group_size=size, record=facts or {"stop_condition": "length"},
        slot={"origin_seed": SEED, "origin_offset": 0},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"is_truncated": True}, True),
        ({"stop_condition": "length"}, True),
        ({"stop_condition": "max_output_tokens", "is_truncated": None}, True),
        ({"stop_condition": "stop"}, False),
        ({"stop_condition": "max_turns", "is_truncated": False}, False),
        ({"task": {"is_truncated": True, "stop_condition": "length"}}, False),
    ],
)
def test_what_counts_as_cut(facts: dict[str, Any], expected: bool) -> None:
    """A limit of turns cuts no answer, and what a task says is not of the answer (design/record#truncated)."""
    assert is_cut(cut(0, **facts).trajectory) is expected


@pytest.mark.parametrize("text", [rb'"is_truncate\u0064": true', rb'"stop_condition": "\u006cength"'])
def test_letters_may_be_written_as_escapes(text: bytes) -> None:
    sound = cut(0, stop_condition="stop").trajectory
    columns = {name: getattr(sound, name) for name in ("token_ids", "logprobs", "mask", "segments", "nodes")}
    assert is_cut(Trajectory(record_text=b'{"reward": 0.0, "nodes": [{}], ' + text + b"}", **columns))


def verdicts(group: DrawnGroup) -> list[tuple[int, Verdict, int]]:
    return [(m.member, m.verdict.verdict, m.verdict.trainable_tokens) for m in group.members]


@pytest.mark.parametrize(
    ("truncated", "verdict", "tokens"),
    [("train", Verdict.FRESH, 2), ("mask", Verdict.EXEMPT, 0), ("baseline", Verdict.BASELINE, 0)],
)
def test_its_reward_counts_in_the_advantage_whatever_its_tokens_do(
    truncated: str, verdict: Verdict, tokens: int
) -> None:
    group = drawn_group(rollout(0, size=3), rollout(1, size=3), cut(2), truncated=truncated)
    assert verdicts(group) == [(0, Verdict.FRESH, 2), (1, Verdict.FRESH, 2), (2, verdict, tokens)]
    advantages = group_advantages(group)
    assert [advantages[member, 0] for member in range(3)] == pytest.approx([-1.0, 0.0, 1.0])


def test_a_masked_one_has_a_place_of_its_own_and_a_baseline_fills_up() -> None:
    """Of two that are needed the first two complete ones are kept; a baseline only where the others don't suffice."""
    desk = Desk()
    desk.say(cut(0), rollout(1, size=3), rollout(2, size=3))
    wanted: dict[str, Any] = {"straggler": {"type": "over-provision", "group_train": 2}}
    kept: dict[str, list[int]] = {}
    for truncated in ("train", "mask", "baseline"):
        decision = desk.decide(truncated=truncated, **wanted)
        assert isinstance(decision, Ready)
        kept[truncated] = [m.member for m in decision.verdict.members]
    assert kept == {"train": [0, 1], "mask": [0, 1], "baseline": [1, 2]}
    alone = Desk()
    alone.say(cut(0), rollout(1, size=3))
    assert isinstance(alone.decide(truncated="mask", **wanted), Ready)
    assert isinstance(alone.decide(truncated="baseline", **wanted), Waiting)


def test_a_group_of_cut_answers_alone_has_no_token() -> None:
    desk = Desk()
    desk.say(cut(0, size=2), cut(1, size=2))
    for truncated in ("mask", "baseline"):
        decision = desk.decide(truncated=truncated)
        assert isinstance(decision, Drop)
        assert decision.reason is DropReason.NO_TOKEN


def test_a_stale_one_is_stale_first() -> None:
    """Its reward counts as little as that of another that is left out."""
    desk = Desk()
    desk.say(cut(0, version=0), rollout(1, size=3), rollout(2, size=3))
    for truncated in ("mask", "baseline"):
        decision = desk.decide(9, truncated=truncated, staleness={"max_staleness": 4, "on_expire": "drop-members"})
        assert isinstance(decision, Ready)
        assert [m.member for m in decision.verdict.members] == [1, 2]


@pytest.mark.broker
async def test_dispatch_views_and_audit_make_the_same_masks(log: Log) -> None:
    """The setting is recorded under the digest that the final names, and read off it again."""
    await log.bring(4)
    settings = masking(log.settings)
    await log.write(*(made for i in range(3) for made in members(id_of(i))))
    before = [row async for row in groups_view(settings)]
    assert (await run_dispatch(settings, drain=True)).trainable_tokens == 3 * 4
    finals = await log.finals()
    assert [[(m.verdict, m.trainable_tokens) for m in final.members] for final in finals] == [
        [(Verdict.FRESH, 2), (Verdict.FRESH, 2), (Verdict.EXEMPT, 0)]
    ] * 3
    recorded = (await read_run(await log.at_rest(Topic.RUN))).trainer_settings(finals[0].settings)
    assert recorded is not None
    assert recorded.truncated == "mask"
    after = [row async for row in groups_view(log.settings)]
    assert [row["members"] for row in after] == [row["members"] for row in before]
    found = await check_masks(log.settings)
    assert (found.checked, found.violations) == (3, [])


def masking(settings: Settings) -> Settings:
    return settings.model_copy(update={"trainer": TrainerSettings(batch_groups=3, truncated="mask")})


def members(group: str) -> list[Rollout]:
    """Two whole answers, and one that was cut."""
    return [rollout(0, size=3, group=group), rollout(1, size=3, group=group), cut(2, group=group)]
