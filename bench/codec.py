"""Codec: headers and columns of one 1,520-token record, against the same record as JSON lists.

Guarantees: `decode` is what a consumer does for every record: wrap the headers, type the ones that it routes by, and
read every column; JSON lists is orjson reading the same columns and record into Python lists, without making arrays
of them, which is the least that a reader of JSON does. Leaves out: the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson

from bench.record import NOW, SOURCE, rollout
from bench.report import Figure
from bench.timing import microseconds
from rolloutlog.contract import value
from rolloutlog.contract.checks import check_trajectory, read_headers, read_rollout
from rolloutlog.contract.events import Event, rollout_event
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.partitions import partition_of

TARGETS = {
    "decode headers and columns": "<= 10 us, ratio >= 8",
    "encode columns": "<= 10 us",
    "check trajectory": "about 15 us",
}
AGAINST = {"decode headers and columns": "JSON lists, read", "encode columns": "JSON lists, written"}


def measure() -> Iterator[Figure]:
    """Microseconds a record."""
    times = microseconds(_calls())
    for name, took in times.items():
        other = AGAINST.get(name)
        ratio = times[other] / took if other else None
        yield Figure(
            bench="codec", name=name, value=took, unit="us", target=TARGETS.get(name, ""), ratio=ratio, against=other
        )


def _calls() -> dict[str, Callable[[], object]]:
    made = rollout()
    out = rollout_event(made, source=SOURCE, now=NOW)
    event = Event(out.topic, partition_of(out.key, 6), 0, NOW, out.key, Headers(out.headers), out.value)
    trajectory = made.trajectory
    lists = orjson.loads(value.encode_json(trajectory))
    text = orjson.dumps(lists)

    def decode() -> object:
        headers = Headers(out.headers)
        return headers.group, headers.member, headers.attempt, headers.reward, value.decode(out.value)

    return {
        "decode headers and columns": decode,
        "JSON lists, read": lambda: (orjson.loads(text), dict(out.headers)),
        "encode columns": lambda: value.encode(trajectory),
        "JSON lists, written": lambda: orjson.dumps(lists),
        "check headers": lambda: read_headers(event, 6),
        "check trajectory": lambda: check_trajectory(value.decode(out.value)),
        "read a whole rollout": lambda: read_rollout(event),
        "make a whole event": lambda: rollout_event(made, source=SOURCE, now=NOW),
        "SHA-256 of the value": lambda: digest_of(out.value),
    }
