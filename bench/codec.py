"""Codec: headers and columns of one 1,520-token record, against the same record as JSON lists.

Guarantees: `decode` is what a consumer does for every record: wrap the headers, type the ones that it routes by, and
read every column; JSON lists is orjson reading the same columns and record into Python lists, without making arrays
of them, which is the least that a reader of JSON does. Leaves out: the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import orjson

from bench.record import NOW, SOURCE, rollout
from bench.report import Figure
from bench.timing import microseconds
from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.events.validation import check_trajectory, read_headers, read_rollout
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.record import value
from rolloutlog.contract.record.plain_json import encode_json
from rolloutlog.contract.wire.headers import Headers

RECORDS, MEMBERS = 512, 8
"""So many different records take turns, in groups of so many: more than any cache of what was read last."""

TARGETS = {
    "decode headers and columns": "<= 10 us, ratio >= 8",
    "encode columns": "<= 10 us",
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
    made = [rollout(id_of("group", number // MEMBERS), number % MEMBERS) for number in range(RECORDS)]
    written = [rollout_event(one, source=SOURCE, now=NOW) for one in made]
    texts = [encode_json(one.trajectory) for one in made]
    rollouts, events, values = cycle(made), cycle(list(map(_read, written))), cycle(out.value for out in written)
    outs, text, lists = cycle(written), cycle(texts), cycle(list(map(orjson.loads, texts[:MEMBERS])))
    return {
        "decode headers and columns": lambda: _decode(next(outs)),
        "JSON lists, read": lambda: (orjson.loads(next(text)), dict(next(outs).headers)),
        "encode columns": lambda: value.encode(next(rollouts).trajectory),
        "JSON lists, written": lambda: orjson.dumps(next(lists)),
        "check headers": lambda: read_headers(next(events), 6),
        "decode and check": lambda: check_trajectory(value.decode(next(values))),
        "read a whole rollout": lambda: read_rollout(next(events)),
        "make a whole event": lambda: rollout_event(next(rollouts), source=SOURCE, now=NOW),
        "SHA-256 of the value": lambda: digest_of(next(values)),
    }


def _decode(record: Outgoing) -> object:
    headers = Headers(record.headers)
    return headers.group, headers.member, headers.attempt, headers.reward, value.decode(record.value)


def _read(out: Outgoing) -> Event:
    return Event(
        topic=out.topic,
        partition=partition_of(out.key, 6),
        offset=0,
        timestamp=NOW,
        key=out.key,
        headers=Headers(out.headers),
        value=out.value,
    )
