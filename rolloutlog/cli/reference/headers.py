"""The page of headers, from the class that is the table.

Guarantees: every row of `Headers`, in its order. Leaves out: which event has which.
"""

from __future__ import annotations

from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract.wire.headers import FIELDS, FOREIGN

INTRODUCTION = """\
Events are CloudEvents 1.0 in Kafka's binary mode: attributes are headers `ce_<name>`, and `content-type` says how to
read the value. All text is UTF-8; numbers are ASCII digits. A consumer routes, counts, selects and skips an event
from its headers alone.

A producer must give the required ones. The rest of a rollout's headers follow from its value: when they are absent
readers derive them, and a record whose headers say something else than its value is rejected (`inconsistent`)."""


def page() -> str:
    """docs/reference/headers.md."""
    rows = [(md.code(row.name), row.kind, "required" if row.required else None, row.meaning) for row in FIELDS.values()]
    foreign = ", ".join(md.code(name) for name in sorted(FOREIGN))
    return md.page(
        "Headers",
        INTRODUCTION,
        md.table(("header", "kind", "", "meaning"), rows),
        "Any other `ce_` header is rejected (`header-unknown`), so that a misspelt one isn't silently ignored; headers "
        f"without the prefix pass, and so do these of CloudEvents itself: {foreign}.",
    )
