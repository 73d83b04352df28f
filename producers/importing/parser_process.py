"""A process that reads spans for an importer: asked in frames on its input, answering in frames on its output.

Guarantees: it ends when its input does, or when nobody reads the answers any more. Leaves out: who asks (`parsers`).
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import BinaryIO

import msgspec

from rolloutlog.producers.importing.parsers import HEAD
from rolloutlog.producers.importing.passes import COUNT, READ, Pass
from rolloutlog.producers.importing.span import Span

PASSES: dict[str, Pass[object]] = {COUNT.name: COUNT, READ.name: READ}  # type: ignore[dict-item]


def main() -> None:
    """Answer each (pass, spans) with a frame for each batch, and an empty one after each span."""
    gc.disable()  # parsed JSON has no cycles, and each line is gone before the next
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while length := int.from_bytes(asked.read(HEAD), "little"):
        name, spans = msgspec.msgpack.decode(asked.read(length), type=tuple[str, list[Span]])
        for span in spans:
            _answer(PASSES[name], span, answers)


def _answer(asked: Pass[object], span: Span, answers: BinaryIO) -> None:
    encode = msgspec.msgpack.Encoder().encode
    for batch in asked.read([span]):
        frame = encode((batch.size, batch.items))
        answers.write(len(frame).to_bytes(HEAD, "little"))
        answers.write(frame)
    answers.write(bytes(HEAD))
    answers.flush()


if __name__ == "__main__":
    main()
