"""The page of a rollout's value: its columns, its record, and the same as plain JSON.

Guarantees: the columns and facts that readers check, and an example that they take. Leaves out: headers.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract.record.plain_json import encode_json
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.soundness import FACTS
from rolloutlog.contract.record.value import ALIGNMENTS, COLUMNS, JSON, SAFETENSORS

JSON_TYPES: dict[type, str] = {list: "array", dict: "object", str: "string", float: "number", int: "integer"}

INTRODUCTION = f"""\
The value of a rollout's record is a safetensors buffer (`content-type: {SAFETENSORS}`): a small JSON header, then raw
little-endian columns. Sampled tokens are counted over the nodes in creation order: response token i is the i-th of
them."""

OPTIONAL = f"""\
More columns may follow, of any dtype of numpy that safetensors has. The buffer's metadata names the axis of each, one
of {", ".join(md.code(alignment) for alignment in ALIGNMENTS)} (where it is absent, opaque): an opaque one is carried
and not looked at. `loss_mask` is a producer's own mask, on the token or the sampled axis: tokens where it is 0 leave
the loss."""

AS_JSON = f"""\
A producer may send `content-type: {JSON}` instead: an object with the same columns as arrays, and `record` as an
object. `columns` is optional; it maps each further name to `dtype` (as numpy writes it, such as `<f4`), `shape`,
`data` and `alignment`. This is a two-node record, whose third response token came from a tool:"""


def page() -> str:
    """docs/reference/record.md."""
    columns = [(md.code(name), spec.dtype.name, _shape(spec.width), spec.meaning) for name, spec in COLUMNS.items()]
    facts = [(md.code(name), JSON_TYPES[fact.kind], fact.meaning) for name, fact in FACTS.items()]
    return md.page(
        "The record of a rollout",
        INTRODUCTION,
        md.table(("column", "dtype", "shape", "holds"), columns),
        OPTIONAL,
        "## What the record says",
        "Readers look at these; a record may say more, and `task`, `info` and `errors` are the environment's own.",
        md.table(("key", "type", "means"), facts),
        "## As plain JSON",
        AS_JSON,
        "```json\n" + _example() + "\n```",
    )


def _shape(width: int) -> str:
    return f"[n, {width}]" if width else "[n]"


def _example() -> str:
    rollout = Rollout.flat(
        prompt_ids=[101, 7, 9],
        response_ids=[20, 21, 22, 23],
        logprobs=[-0.125, -0.5, -0.25],
        mask=[1, 1, 0, 1],
        versions=[0, 0, 1],
        reward=1.0,
        group="g",
        member=0,
        group_size=2,
    )
    body: dict[str, Any] = orjson.loads(encode_json(rollout.trajectory))
    lines = [f'  "{name}": {json.dumps(content)}' for name, content in body.items()]
    return "{\n" + ",\n".join(lines) + "\n}"
