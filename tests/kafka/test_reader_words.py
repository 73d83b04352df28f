"""What a reader and the process it reads for tell one another (design/trainer#readers)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.errors import Fenced, IndexMismatch, InvalidRecord
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.processes.reader_words import Failed, Opening, events_of, frame_of

PLACES = [(Topic.ROLLOUTS, 0), (Topic.SEEDS, 3)]
NUMBERS = {place: number for number, place in enumerate(PLACES)}


def events() -> st.SearchStrategy[Event]:
    """Of any bytes, in one of the places."""
    some = st.none() | st.binary(max_size=40)
    headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=4).map(Headers)
    whole = st.integers(0, 1 << 62)
    return st.builds(
        lambda place, *rest: Event(*place, *rest), st.sampled_from(PLACES), whole, whole, some, headers, some
    )


@given(st.lists(events(), max_size=5), st.booleans())
def test_events_come_out_of_a_frame_as_they_went_in(made: list[Event], checks: bool) -> None:
    found = events_of(memoryview(frame_of(made, NUMBERS, checks=checks)), PLACES)
    assert [told(one) for one in found] == [told(one) for one in made]


def told(event: Event) -> tuple[object, ...]:
    return *event.__reduce__()[1][:5], event.headers.raw, event.value, event.is_sound


def test_an_error_comes_out_as_itself() -> None:
    for error in (IndexMismatch("gone", "look"), Fenced("by another"), InvalidRecord("shape", "bad", "mend it")):
        found = Failed.of(error, 3).error
        assert (type(found), found.message, found.hint) == (type(error), error.message, error.hint)
    assert "hint: look" in Failed.of(IndexMismatch("gone", "look"), 0).error.__notes__


def test_what_opens_a_reader_is_the_whole_connection_and_prints_no_secret() -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'x required username="me" password="hidden";',
    }  # fmt: skip
    mine = replace(Connection("nowhere:9", Names("ns"), max_message_bytes=1 << 20), properties=properties)
    opening = Opening.of(mine, 1, 2, True, [])
    assert opening.connection.user == "me"
    assert opening.connection.client_options["sasl_plain_password"] == "hidden"
    assert replace(opening.connection, security={}) == mine
    assert "hidden" not in f"{opening!r}{opening.connection!r}"
