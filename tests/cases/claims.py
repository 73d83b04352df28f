"""Claims that can't be met in a store that is there: each is its own fault, and none of the store (design/log#claims).

A URL's STORE stands for the store's own; `prepare` puts into the folder what the claim points at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


def nothing(folder: Path) -> None:
    """Leave the store as it is."""


def _at_the_digest(folder: Path) -> Path:
    (folder / "ab").mkdir()
    return folder / "ab" / ("ab" * 32)


class BadClaim(NamedTuple):
    """Where it points, and what lies there. Its digest is `ab` 32 times, its size 10."""

    url: str
    prepare: Callable[[Path], object] = nothing


BAD_CLAIMS = {
    "NUL": BadClaim("STORE/a\0b"),
    "long name": BadClaim("STORE/" + "a" * 3000),
    "long URL": BadClaim("STORE/" + "a/" * 3000),
    "folder": BadClaim("STORE/ab", lambda store: (store / "ab").mkdir()),
    "the store itself": BadClaim("STORE/"),
    "below a file": BadClaim("STORE/f/x", lambda store: (store / "f").write_bytes(b"")),
    "elsewhere": BadClaim("file:///etc/passwd"),
    "http": BadClaim("http://127.0.0.1:9/x"),
    "unknown scheme": BadClaim("nosuch://x/y"),
    "relative": BadClaim("a/b"),
    "empty": BadClaim(""),
    "dots": BadClaim("STORE/../x", lambda store: (store.parent / "x").write_bytes(b"0123456789")),
    "encoded dots": BadClaim("STORE/%2e%2e/x"),
    "link out of it": BadClaim("STORE/l/passwd", lambda store: (store / "l").symlink_to("/etc")),
    "loop": BadClaim("STORE/l", lambda store: (store / "l").symlink_to("l")),
    "fifo": BadClaim("STORE/fifo", lambda store: os.mkfifo(store / "fifo")),
    "endless": BadClaim("STORE/zero", lambda store: (store / "zero").symlink_to("/dev/zero")),
    "closed": BadClaim("STORE/shut/x", lambda store: (store / "shut").mkdir(mode=0)),
    "other size": BadClaim("STORE/x", lambda store: (store / "x").write_bytes(b"012345678")),
    "other body": BadClaim("STORE/x", lambda store: (store / "x").write_bytes(b"0123456789")),
    "escapes": BadClaim("STORE/\x1b[31mé"),
    "folder at its digest": BadClaim("STORE/x", lambda store: _at_the_digest(store).mkdir()),
    "fifo at its digest": BadClaim("STORE/x", lambda store: os.mkfifo(_at_the_digest(store))),
    "other body at its digest": BadClaim("STORE/x", lambda store: _at_the_digest(store).write_bytes(b"0123456789")),
}
