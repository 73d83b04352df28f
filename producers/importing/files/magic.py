"""Files that hold something else than lines of JSON, recognised by their first bytes.

Guarantees: such a file is refused whole, in one sentence that says what it is and what to do; nothing of it is decoded,
and a file that begins with anything else is read line by line. Leaves out: what single lines are
(`rolloutlog.formats.foreign.era`).
"""

from __future__ import annotations

import re

LINES = "write one JSON object a line"
UNPACK = "unpack it first"
KNOWN: tuple[tuple[bytes, str, str], ...] = (
    (b"PAR1", "Parquet", LINES),
    (b"ARROW1", "Arrow", LINES),
    (b"ORC", "ORC", LINES),
    (b"Obj\x01", "Avro", LINES),
    (b"\x89HDF\r\n\x1a\n", "HDF5", LINES),
    (b"SQLite format 3\0", "SQLite", LINES),
    (b"\x93NUMPY", "NumPy", LINES),
    (b"\x1f\x8b", "gzip", UNPACK),
    (b"\x28\xb5\x2f\xfd", "zstd", "name it .jsonl.zst, or unpack it"),
    (b"PK\x03\x04", "zip", UNPACK),
    (b"PK\x05\x06", "zip", UNPACK),
    (b"BZh", "bzip2", UNPACK),
    (b"\xfd7zXZ\0", "xz", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "7z", UNPACK),
    (b"\x04\x22\x4d\x18", "lz4", UNPACK),
    (b"Rar!", "rar", UNPACK),
    (b"\xff\xfe\0\0", "UTF-32 text", "write it as UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 text", "write it as UTF-8"),
    (b"\xff\xfe", "UTF-16 text", "write it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "write it as UTF-8"),
    (b"{\0", "UTF-16 text", "write it as UTF-8"),
    (b"\0{", "UTF-16 text", "write it as UTF-8"),
    (b"%PDF-", "PDF", LINES),
    (b"\x7fELF", "program", LINES),
    (b"version https://git-lfs.github.com/spec", "Git LFS pointer", "fetch the file that it stands for"),
)
"""How a file begins, what it is, and what to do."""

_TAR = 257
_SAFETENSORS_HEAD = 8
_PICKLES = frozenset(range(2, 6))
_DOCUMENT = re.compile(rb"\s*(?:\[\s*[\{\n]|\{\s*\n\s+\")")
"""One JSON text over several lines: an array of objects, or an object whose first key stands on a line of its own."""


def foreign_format(head: bytes) -> str | None:
    """What a file is that begins so, if it isn't lines of JSON; None for one that may be."""
    for magic, name, advice in KNOWN:
        if head.startswith(magic):
            return f"{name}, not lines of JSON: {advice}"
    if head[_TAR:].startswith(b"ustar"):
        return f"tar, not lines of JSON: {UNPACK}"
    if len(head) > 1 and head[0] == 0x80 and head[1] in _PICKLES:
        return f"pickle, which is never loaded: {LINES}"
    if head[_SAFETENSORS_HEAD:].startswith(b'{"') and b"\0" in head[:_SAFETENSORS_HEAD]:
        return f"safetensors, not lines of JSON: {LINES}"
    if _DOCUMENT.match(head):
        return f"one JSON text over all lines: {LINES}"
    if b"\0" in head and not any(line.lstrip().startswith(b"{") for line in head.splitlines()):
        return f"binary data, not lines of JSON: {LINES}"
    return None
