"""Whatever the JSON inside a record says, the trainer judges its group and agrees with the buffer
(design/record#validation)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.shard.indexing import row_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.dispatch.batch import decoded
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.group_row import group_row
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.rollout_facts import Arrived, fact_of
from tests.cases.hostile import hostile
from tests.cases.raw import Raw


@given(st.lists(hostile, min_size=1, max_size=4))
def test_no_json_inside_a_record_stops_the_trainer(raws: list[Raw]) -> None:
    history = History()
    history.start(0, None, 0)
    history.publish(Policy(0, 0))
    assembly, dispatch = Assembly(0), DispatchPolicy(TrainerSettings(batch_groups=1), history)
    for offset, raw in enumerate(raws):
        event = raw.event(1, offset)
        fact = fact_of(event, 1)
        assert isinstance(fact, Arrived) is taken_by_the_buffer(raw)
        assembly.fold(event, fact)
    for pending in assembly.groups.values():
        dispatch.decide(pending, 1, assembly.time.now)
        group_row(pending, dispatch, 1, assembly.time.now, None)
        assert all(decoded(payload).trajectory.record for payload in pending.payloads.values())


def taken_by_the_buffer(raw: Raw) -> bool:
    try:
        row_of(raw.event(1), 1)
    except Rejected:
        return False
    return True
