"""A new cluster's id is never taken for an option by Kafka's storage tool."""

from __future__ import annotations

import uuid

import pytest

from rolloutlog.broker.process import plan


def test_an_id_never_starts_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([uuid.UUID(bytes=b"\xf8" * 16), uuid.UUID(bytes=b"\x01" * 16)])
    monkeypatch.setattr(plan.uuid, "uuid4", lambda: next(made))
    assert plan._random_id() == "AQEBAQEBAQEBAQEBAQEBAQ"
