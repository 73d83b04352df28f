"""Whether a zstd file is whole, as its frames say: unpacking one that was cut ends as if nothing were missing.

Guarantees: only the heads of frames and blocks are read. Leaves out: unpacking (`lines`), which tells what is broken in
any other way.
"""

from __future__ import annotations

import os
from typing import IO

_SKIPPED = range(0x184D2A50, 0x184D2A60)
_SKIPPED_HEAD = 8
_LONGEST_HEAD = 18
_BLOCK_HEAD = 3
_ONE_BYTE_REPEATED = 1
_CHECKSUM = 4


def is_cut(stream: IO[bytes]) -> bool:
    """True where a file, all of whose bytes could be unpacked, ends within a frame."""
    end = stream.seek(0, os.SEEK_END)
    at = stream.seek(0)
    while at < end:
        at = _behind(stream, at, end)
    return at > end


def _behind(stream: IO[bytes], at: int, end: int) -> int:
    """Where the frame ends that begins there; behind the end of a file that was cut."""
    import zstandard

    head = stream.read(_LONGEST_HEAD)
    if int.from_bytes(head[:4], "little") in _SKIPPED:
        return stream.seek(at + _SKIPPED_HEAD + int.from_bytes(head[4:_SKIPPED_HEAD], "little"))
    try:
        facts, at = zstandard.get_frame_parameters(head), at + zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        return end + 1
    is_last = False
    while not is_last:
        if at + _BLOCK_HEAD > end:
            return end + 1
        stream.seek(at)
        block = int.from_bytes(stream.read(_BLOCK_HEAD), "little")
        is_last, size = bool(block & 1), 1 if block >> 1 & 3 == _ONE_BYTE_REPEATED else block >> 3
        at += _BLOCK_HEAD + size
    return stream.seek(at + (_CHECKSUM if facts.has_checksum else 0))
