"""`audit --masks`: what was trained is masked again from the log alone, and compared (design/groups#masks-again)."""

from __future__ import annotations

import pytest

from rolloutlog.consumers.audit.mask_check import check_masks, masks_again
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.trainer.dispatch.decision import Ready
from rolloutlog.trainer.dispatch.finals import final_of
from rolloutlog.trainer.dispatch_service import run_dispatch
from tests.trainer.desk import Desk, rollout
from tests.trainer.log import Log, now

MASKED = {"max_staleness": 20, "max_token_staleness": 1, "on_expire": "keep-as-baseline"}


def with_staleness(settings: Settings, **staleness: object) -> Settings:
    trainer = TrainerSettings.model_validate({"batch_groups": 1, "staleness": staleness})
    return settings.model_copy(update={"trainer": trainer})


@pytest.mark.broker
async def test_masks_are_made_again_by_the_settings_that_judged_them(log: Log) -> None:
    """Of two trainers with different limits, one after the other; and one that never was is found."""
    await log.bring(0, 1, 2, 3, 4)
    strict, lax = with_staleness(log.settings, **MASKED), with_staleness(log.settings)
    for number, settings in enumerate((strict, lax)):
        group = id_of(number)
        await log.write(*(rollout(m, [3, 3, 4] if lax is settings else [0, 2, 4], group=group) for m in range(2)))
        assert (await run_dispatch(settings, drain=True)).groups == 1
    trained = {final.group: final for final in await log.finals()}
    assert [trained[id_of(i)].members[0].trainable_tokens for i in range(2)] == [1, 3]
    found = await check_masks(log.settings)
    assert (found.checked, found.violations, found.as_json()) == (2, [], {"checked": 2, "unchecked": {}})

    forged = trained[id_of(0)].model_copy(update={"pass_number": 2, "masks": trained[id_of(1)].masks})
    unknown = trained[id_of(1)].model_copy(update={"pass_number": 2, "settings": "nobody's"})
    await log.write(*(final_event(final, source="/test", now=now()) for final in (forged, unknown)))
    found = await check_masks(log.settings)
    assert (found.checked, dict(found.unchecked)) == (3, {"settings": 1})
    assert [(bad.kind, bad.group, bad.offset) for bad in found.violations] == [("masks", id_of(0), 0)]


def test_a_later_resume_doesnt_change_what_was_masked_on_the_timeline_that_it_left() -> None:
    """A token that is abandoned now was the timeline's own then."""
    then, now_ = History(), History()
    for history in (then, now_):
        history.start(0, None, 0)
    desk = Desk()
    made = [rollout(0, [1, 4]), rollout(1, [3, 4])]
    desk.say(*made)
    settings = TrainerSettings.model_validate({"staleness": MASKED})
    decision = desk.decide(5, then, staleness=MASKED)
    assert isinstance(decision, Ready)
    final: GroupFinal = final_of(desk.pending(), decision.verdict, timeline=0, as_of=2, settings="s")
    now_.start(1, 0, 4)
    now_.start(2, 1, 5)
    again = masks_again(final, dict(enumerate(made)), settings, now_.as_of(0))
    assert again.masks_digest == final.masks
    assert [m.trainable_tokens for m in again.members] == [m.trainable_tokens for m in final.members] == [1, 2]
