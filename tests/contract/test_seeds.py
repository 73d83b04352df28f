"""Seeds: what is asked of workers, and the slots that they fill (design/groups#seeds)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rolloutlog.contract.events.rollouts import read_seed, read_seed_cancelled
from rolloutlog.contract.events.seeds import Anchor, Ask, Draw, Seed, Source, seed_cancelled_event, seed_event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.value import JSON
from rolloutlog.contract.vocabulary import AnchorKind, RejectReason, SeedKind
from rolloutlog.contract.wire.headers import Headers
from tests.cases.raw import NOW, SOURCE, Raw
from tests.cases.refusals import reason_of

FRESH = Seed(id="f", kind=SeedKind.FRESH, group="g", group_size=3, env="sums", task={"answer": 42}, budget=100)
DERIVED = Seed(
    id="d",
    kind=SeedKind.CONTINUE,
    group="g2",
    group_size=2,
    group_train=1,
    env="sums",
    derivation="continue",
    messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 x 7?"}],
    source=Source(rollout="g.1", attempt=2, handle="3/40/900", digest="abc", reward=0.5, trace="t-1"),
    anchor=Anchor(kind=AnchorKind.TOOL_CALL, node=5),
    depth=1,
    tokens=60,
    draw=Draw(number=4, rollouts=41, seeds=2, group_events=1, settings="digest"),
)
AGAIN = Seed(
    id="r",
    kind=SeedKind.RESUME,
    group="g",
    group_size=3,
    env="sums",
    asks=[Ask(member=2, attempt=2)],
    prefix="3/77/100",
    origin_seed="f",
    origin_offset=12,
)


@pytest.mark.parametrize("seed", [FRESH, DERIVED, AGAIN], ids=lambda seed: seed.kind)
def test_a_seed_reads_back_from_its_event(seed: Seed) -> None:
    made = seed_event(seed, source=SOURCE, now=NOW)
    assert read_seed(Raw.of(made).event()) == Seed.of(Raw.of(made).event()) == seed
    assert made.value == seed_event(seed, source=SOURCE, now=NOW + 1).value


def test_its_headers_say_what_selects_it() -> None:
    headers = Headers(seed_event(DERIVED, source=SOURCE, now=NOW).headers)
    assert (headers.id, headers.seed, headers.group, headers.seed_kind) == ("d", "d", "g2", SeedKind.CONTINUE)
    assert (headers.derivation, headers.depth, headers.source_id) == ("continue", 1, "g.1")
    assert headers.source_handle == Handle(3, 40, 900)


def test_a_fresh_seed_asks_for_every_member_and_is_its_own_origin() -> None:
    assert FRESH.wanted == [Ask(member=member, attempt=1) for member in range(3)]
    slot = FRESH.slot(FRESH.wanted[1], offset=12, run="r")
    assert (slot.group, slot.member, slot.attempt, slot.run) == ("g", 1, 1, "r")
    assert (slot.origin_seed, slot.origin_offset) == ("f", 12)


def test_a_resumed_member_descends_from_the_origin_seed() -> None:
    assert AGAIN.wanted == [Ask(member=2, attempt=2)]
    slot = AGAIN.slot(AGAIN.wanted[0], offset=99)
    assert (slot.member, slot.attempt) == (2, 2)
    assert (slot.origin_seed, slot.origin_offset) == ("f", 12)
    assert slot.seed_kind == SeedKind.RESUME


def test_a_derived_member_keeps_its_lineage() -> None:
    slot = DERIVED.slot(DERIVED.wanted[0], offset=5)
    assert (slot.env, slot.derivation, slot.depth, slot.needed) == ("sums", "continue", 1, 1)
    assert (slot.source_id, slot.source_handle) == ("g.1", Handle(3, 40, 900))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "other"}, RejectReason.INCONSISTENT),
        ({"group_size": 0}, RejectReason.SHAPE),
        ({"group_train": 4}, RejectReason.SHAPE),
        ({"kind": "Imagine!"}, RejectReason.SHAPE),
        ({"more": 1}, RejectReason.SHAPE),
        ({"asks": [{"member": 1, "attempt": 1}]}, RejectReason.SHAPE),
        ({"kind": "reroll"}, RejectReason.SHAPE),
        ({"source": {"rollout": "r", "attempt": 1, "handle": "three"}}, RejectReason.SHAPE),
        ({"env": ""}, RejectReason.SHAPE),
        ({"env": "e" * 1025}, RejectReason.SHAPE),
        ({"derivation": ""}, RejectReason.SHAPE),
        ({"id": "i" * 1018}, RejectReason.SHAPE),  # its cancellation's id would be too long
        ({"depth": 2**63}, RejectReason.SHAPE),
        ({"budget": -1}, RejectReason.SHAPE),
        (
            {"draw": {"number": 2**64 - 1, "rollouts": 0, "seeds": 0, "group_events": 0, "settings": ""}},
            RejectReason.SHAPE,
        ),
    ],
    ids=str,
)
def test_a_seed_that_asks_for_what_cannot_be_is_rejected(change: dict[str, Any], reason: RejectReason) -> None:
    made = Raw.of(seed_event(FRESH, source=SOURCE, now=NOW))
    body = orjson.dumps(orjson.loads(made.value or b"") | change)
    assert reason_of(lambda: read_seed(made.holding(body, JSON).event())) is reason


@pytest.mark.parametrize(
    ("body", "reason"), [(b"{", RejectReason.NOT_JSON), (b"[]", RejectReason.SHAPE), (None, RejectReason.VALUE_NULL)]
)
def test_a_value_that_is_no_seed_is_rejected(body: bytes | None, reason: RejectReason) -> None:
    made = Raw.of(seed_event(FRESH, source=SOURCE, now=NOW)).holding(body, JSON)
    assert reason_of(lambda: read_seed(made.event())) is reason


def test_a_cancelled_seed_is_named() -> None:
    made = seed_cancelled_event(seed="f", group="g", group_size=3, reason="attempts", source=SOURCE, now=NOW)
    assert read_seed_cancelled(Raw.of(made).event()) == "f"


def test_a_handle_reads_as_it_writes() -> None:
    assert Handle.parse(str(Handle(3, 40, 900))) == Handle(3, 40, 900)
    assert Handle.parse("3/40") == Handle(3, 40, 0)
