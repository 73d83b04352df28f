"""A process that reads spans for an importer: asked once on its input, answering in frames on its output.

Guarantees: it ends when its work is done or nobody reads the answers any more. Leaves out: who asks (`parsers`).
"""

from __future__ import annotations

import gc
import signal
import sys

import msgspec

from rolloutlog.producers.importing.parsers import HEAD
from rolloutlog.producers.importing.passes import COUNT, READ, Pass
from rolloutlog.producers.importing.span import Span

PASSES: dict[str, Pass[object]] = {COUNT.name: COUNT, READ.name: READ}  # type: ignore[dict-item]


def main() -> None:
    """Read (pass, spans) to the end of the input; write a frame for each batch and an empty one after each span."""
    gc.disable()  # parsed JSON has no cycles, and each line is gone before the next
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    name, spans = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[str, list[Span]])
    asked = PASSES[name]
    encode, out = msgspec.msgpack.Encoder().encode, sys.stdout.buffer
    for span in spans:
        for batch in asked.read([span]):
            frame = encode((batch.size, batch.items))
            out.write(len(frame).to_bytes(HEAD, "little"))
            out.write(frame)
        out.write(bytes(HEAD))
        out.flush()


if __name__ == "__main__":
    main()
