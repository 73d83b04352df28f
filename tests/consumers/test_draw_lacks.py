"""Why nothing is derived, as `status` says it from shard rows, is what the shard itself says (design/buffer#empty)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.shard.candidate_sampler import DrawLack
from rolloutlog.consumers.views.draw_lacks import draw_lacks
from tests.buffer.events_by_hand import rollout
from tests.buffer.partition_log import Owner, PartitionLog, settings_of


@pytest.mark.parametrize(
    ("changes", "groups", "lack"),
    [
        ({"buffer": {"ratio": 9.0}}, 3, DrawLack.CANDIDATE),
        ({"buffer": {"ratio": 0.2}}, 3, DrawLack.RATIO),
        ({"buffer": {"ratio": 0.5}, "trainer": {"batch_groups": 2, "max_open": 4}}, 12, DrawLack.OPEN_GROUPS),
        ({"buffer": {"ratio": 9.0, "derivations": []}}, 3, None),
    ],
    ids=["no-candidate", "ratio", "open-groups", "nothing-to-derive"],
)
def test_a_shard_row_tells_what_its_shard_lacks(changes: dict[str, Any], groups: int, lack: DrawLack | None) -> None:
    log = PartitionLog(settings_of(**changes))
    for number in range(groups):
        log.append(rollout(f"g{number}", 0), rollout(f"g{number}", 1))
    (owner := Owner(log)).settle()
    state = next(row for row in reversed(log.rows) if isinstance(row, StateRow))
    settings = log.settings
    found = draw_lacks({log.partition: state}, settings.buffer, settings.trainer, settings.topics.partitions)
    assert found == ({} if lack is None else {lack: 1})
    assert lack is None or owner.shard.lack is lack
