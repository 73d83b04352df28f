"""The bytes of a row: a code, then the row as an array in MessagePack; before that of a round its checksum.

Guarantees: `decode(encode(row)) == row`; bytes that no shard wrote are a ValueError, as is a row of a round of which a
bit is another one. The code is the version of all
kinds of rows: it changes with what any of them means, so that an index of before is refused as a whole, and folded anew
by `rolloutlog buffer reindex`. Leaves out: what a row says (`rollout_row`, `rows`).
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec
from pydantic import ValidationError

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import RoundRow
from rolloutlog.buffer.index.rows import ChunkRow, Row
from rolloutlog.contract.events.event import Outgoing, outgoing
from rolloutlog.contract.events.rollouts import check_seed
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import MAX_TEXT
from rolloutlog.contract.wire.rejection import problem_of

CODE = b"\x18"
"""First byte of every row. Rows of before began with another one, up to 23, or with `[`."""
SUMMED = bytes([CODE[0] | 0x80])
"""First byte of a row of a round, before its CRC-32; those of before have none, and begin as all rows do."""
SUM_BYTES = 4
CONTENT_TYPE = "application/vnd.rolloutlog.row"


def _plain_seed(value: Any) -> Any:
    """What the fold needs of a seed."""
    if isinstance(value, Seed):
        return value.model_dump(mode="json", exclude={"task", "messages", "snapshot"}, exclude_none=True)
    raise NotImplementedError(f"{type(value)} is no part of a row")


def _seed(kind: type, plain: Any) -> Any:
    """A seed that the fold can take."""
    if kind is not Seed:
        raise NotImplementedError(f"{kind} is no part of a row")
    try:
        seed = Seed.model_validate(plain)
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None
    check_seed(seed)
    return seed


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain_seed)
_DECODER = msgspec.msgpack.Decoder(Row, dec_hook=_seed)


def encode(row: Row) -> bytes:
    """The value of a row."""
    packed = _ENCODER.encode(row)
    return SUMMED + _sum_of(packed) + packed if isinstance(row, RoundRow) else CODE + packed


def decode(value: bytes) -> Row:
    """Read the value of a row. Raises ValueError for one that this version didn't write."""
    try:
        row = _DECODER.decode(_packed(value))
    except RecursionError as error:
        raise ValueError(f"a row in another form than this version's: {error}") from error
    if isinstance(row, RolloutRow):
        row.check()
    return row


def _packed(value: bytes) -> memoryview:
    """What stands behind the code, and the checksum."""
    code, behind = value[:1], memoryview(value)[1:]
    if code == CODE:
        return behind
    if code != SUMMED:
        raise ValueError(f"a row of kind {value[0] if value else 0} is unknown to this version")
    said, packed = bytes(behind[:SUM_BYTES]), behind[SUM_BYTES:]
    if said != _sum_of(packed):
        raise ValueError("a row of a round that isn't as it was written")
    return packed


def _sum_of(packed: bytes | memoryview) -> bytes:
    return crc32(packed).to_bytes(SUM_BYTES, "little")


def facts(row: Row) -> dict[str, Any]:
    """A row as names and values, for people to look at."""
    known = {name: getattr(row, name) for name in row.__struct_fields__}
    if isinstance(row, RolloutRow):
        del known["packed"], known["sha256"]
        known |= {"digest": row.digest, "anchors": [anchor._asdict() for anchor in row.anchors]}
    if isinstance(row, ChunkRow):
        known["ids"] = [name.hex() for name in row.names]
    plain = msgspec.to_builtins(known, enc_hook=_plain_seed)
    return {name: [*fact] if isinstance(fact, tuple) else fact for name, fact in plain.items()}


def row_event(row: Row, *, partition: int, source: str, now: int) -> Outgoing:
    """A row as an event of `rollout-index`, on the partition of what it describes."""
    key = row.key
    return outgoing(
        row.TYPE,
        Topic.ROLLOUT_INDEX,
        key=key,
        event_id=key if len(key) <= MAX_TEXT else id_of("row", key),
        source=source,
        value=encode(row),
        now=now,
        content_type=CONTENT_TYPE,
        partition=partition,
    )
