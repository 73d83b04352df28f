"""The shared table of bad inputs, driven through a shard (design/record#validation)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.body import Body, Resolved
from rolloutlog.contract.events.dead_letters import rejected_event
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import Claim
from rolloutlog.contract.wire.rejection import Rejected
from tests.buffer.partition_log import NOW, settings_of
from tests.cases.bad_inputs import BAD_INPUTS, BAD_MEMBER, BadInput

SETTINGS = settings_of(topics={"partitions": 6}, buffer={"ratio": 0.0})


def body_of(row: BadInput, event: Event) -> Resolved | None:
    """What the service hands over for a claim, from the row's blobs."""
    if row.found_in != "claim" or b"claim" not in event.headers.raw["content-type"]:
        return None
    try:
        claim = Claim.decode(event.value or b"")
    except Rejected as rejected:
        return rejected
    blob = row.blobs.get(claim.url.rpartition("/")[2])
    if blob is None:
        return Rejected(RejectReason.CLAIM_MISSING, claim.url)
    if digest_of(blob) != claim.digest:
        return Rejected(RejectReason.CLAIM_CHANGED, claim.url)
    return Body(blob, claim.content_type)


@pytest.mark.parametrize("row", BAD_INPUTS, ids=lambda row: row.name)
def test_each_bad_record_becomes_a_dead_letter_and_its_slot_ends_as_the_table_says(row: BadInput) -> None:
    shards = {partition: Shard.empty(partition, SETTINGS) for partition in range(6)}
    expected: list[tuple[int, str]] = []
    for offset, written in enumerate(row.records()):
        event = written.raw.event(6, offset)
        if written.reason is not None and row.found_in != "policies":
            expected.append((offset, written.reason))
        shards[event.partition].read(event, body_of(row, event), now=NOW, clock=0.0)
    dead = [outgoing for shard in shards.values() for outgoing in shard.outbox.dead_letters]
    assert sorted(dict(letter.headers)["ce_subject"].decode().split("/")[1] for letter in dead) == sorted(
        str(offset) for offset, _ in expected
    )
    assert sorted(dict(letter.headers)["ce_reason"].decode() for letter in dead) == sorted(r for _, r in expected)
    groups = [
        shard.fold.groups.opened[row.group].group for shard in shards.values() if row.group in shard.fold.groups.opened
    ]
    assert [group.status(0) for group in groups[:1]] == (["completed"] if row.records() else [])
    ends = groups[0].status(BAD_MEMBER) if groups else "open"
    assert ends == row.ends_for("buffer")
    for shard in shards.values():
        assert all(offset >= 0 for offset in shard.fold.next_offsets.values())


@pytest.mark.parametrize("partition", range(6))
def test_records_that_are_read_together_become_what_they_are_one_by_one(partition: int) -> None:
    """Every record of the table, on whichever partition it lies."""
    events = [written.raw.event(6, 1) for row in BAD_INPUTS for written in row.records()]
    ours = [replace(event, offset=at) for at, event in enumerate(events) if event.partition == partition]
    alone, together = (Shard.empty(partition, SETTINGS) for _ in range(2))
    for event in ours:
        alone.read(event, now=NOW, clock=0.0)
    together.read_all(ours, now=NOW, clock=0.0)
    assert together.fold == alone.fold
    said = [shard.flush(now=NOW, clock=0.0) for shard in (alone, together)]
    assert said[0] == said[1]
    assert {made.topic for made in said[0]} == {Topic.ROLLOUT_INDEX, Topic.DEAD_LETTERS}


def test_a_dead_letter_carries_no_value() -> None:
    row = next(row for row in BAD_INPUTS if row.name == "not-json")
    event = row.records()[1].raw.event(6, 1)
    letter = rejected_event(event, Rejected(RejectReason.NOT_JSON, "x"), source="/t", now=NOW)
    assert letter.topic is Topic.DEAD_LETTERS
    assert (event.value or b"?") not in letter.value
