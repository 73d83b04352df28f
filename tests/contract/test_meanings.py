"""Every word on the log has a meaning, and no meaning is of a word that isn't there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pytest

from rolloutlog.contract import meanings
from rolloutlog.contract.vocabulary import DropReason, EventType, RejectReason, SeedKind, Verdict


@pytest.mark.parametrize(
    ("words", "table"),
    [
        (EventType, meanings.EVENTS), (RejectReason, meanings.REJECTED), (DropReason, meanings.DROPPED),
        (Verdict, meanings.VERDICTS), (SeedKind, meanings.SEEDS),
    ],
)  # fmt: skip
def test_every_word_has_a_meaning(words: type[StrEnum], table: Mapping[StrEnum, str]) -> None:
    assert table.keys() == set(words)
    assert all(table.values())
