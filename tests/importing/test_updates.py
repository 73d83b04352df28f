"""Era E5: a stream of episodes and what was said of them later (design/eras#updates)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.record import value
from rolloutlog.formats.foreign.era import Beside, Era
from rolloutlog.producers.importing.parsing.updates import UpdateAt, Updates, read_update
from rolloutlog.producers.importing.report import Report
from tests.importing.reading import form_of, read_raw

Run = Callable[..., Report]


@pytest.fixture
def traces(samples: Path) -> Path:
    return samples / "sept2026/monitors/file/traces"


def stream(traces: Path) -> dict[str, bytes]:
    lines = (traces / "stream/00000.jsonl").read_bytes().splitlines()
    return {orjson.loads(raw)["traces"][0]["id"]: raw for raw in lines}


def updates_in(folder: Path, *producers: str, packed: bool = False) -> Updates:
    """All updates of these producers, as pass one finds them."""
    updates = Updates()
    for producer in producers:
        path, byte = folder / producer / "00000.jsonl", 0
        for text in path.read_bytes().splitlines(True):
            at = UpdateAt(orjson.loads(text)["trace_id"], byte, len(text), text if packed else None)
            updates.add(at, str(path))
            byte += len(text)
    return updates


def notes_of(updates: Updates, trace: str, raw: bytes) -> dict[str, Any]:
    return updates.notes([trace], value.encode(read_raw(raw).trajectory))


def test_what_the_lines_are(traces: Path) -> None:
    """Which lines belong to a stream (design/eras#telling-apart)."""
    assert {form_of(raw) for raw in stream(traces).values()} == {Era.E5}
    for producer in ("orch", "trainer"):
        rows = (traces / f"annotations/{producer}.index.jsonl").read_bytes().splitlines()
        assert {form_of(raw) for raw in rows} == {Beside.STREAM_INDEX}
        rows = (traces / f"annotations/{producer}/00000.jsonl").read_bytes().splitlines()
        assert {form_of(raw) for raw in rows} == {Beside.UPDATE}
    assert {form_of(raw) for raw in (traces / "stream.index.jsonl").read_bytes().splitlines()} == {Beside.STREAM_INDEX}


def test_the_stream_says_dispatch_and_arrival(traces: Path) -> None:
    """`info.kind`, `.dispatch` and `.arrival` are notes: the value is the one that E4 would have."""
    one = read_raw(next(iter(stream(traces).values())))
    assert one.notes["dispatch"]["step"] == 2
    assert one.notes["arrival"]["step"] == 3
    assert (one.step, one.dispatch_step) == (3, 2)
    assert one.trajectory.record["info"] == {}


@pytest.mark.parametrize("packed", [False, True])
def test_two_producers_are_folded_onto_the_response_axis(traces: Path, packed: bool) -> None:
    """Golden: a linear trace of 91 sampled tokens; from the file, and from lines that pass one unpacked."""
    updates = updates_in(traces / "annotations", "orch", "trainer", packed=packed)
    trace, raw = next(item for item in stream(traces).items() if item[0].startswith("e10e8a"))
    notes = notes_of(updates, trace, raw)
    assert {key: notes[key] for key in ("effective", "trained", "step", "advantage")} == {
        "effective": True,
        "trained": True,
        "step": 3,
        "advantage": -0.5000000000000001,
    }
    assert notes["ship"]["step"] == 3
    assert notes["advantages"] == pytest.approx([-0.5] * 91)
    assert notes["trainer_logprobs"][-5:] == [-0.0163, -0.0109, -0.1792, -0.1598, -0.0999]
    assert notes["entropies"] == [0.5] * 91
    assert notes["is_masked"] == [False] * 91


def test_both_branches_of_a_compacted_trace(traces: Path) -> None:
    """Each branch comes in an update of its own; a node that both have gets its values once."""
    updates = updates_in(traces / "annotations", "trainer")
    trace, raw = next(item for item in stream(traces).items() if item[0].startswith("a6500d"))
    said = [
        orjson.loads(text)["branches"][0]
        for text in (traces / "annotations/trainer/00000.jsonl").read_bytes().splitlines()
        if orjson.loads(text)["trace_id"] == trace
    ]
    notes = notes_of(updates, trace, raw)
    expected = [v for branch in said for v in branch["trainer_logprobs"] if v is not None]
    assert notes["trainer_logprobs"] == expected
    assert len(expected) == 121


def test_the_newest_wins_per_key(traces: Path) -> None:
    """`info` is merged in depth; a later stream replaces an earlier one; others stay."""
    trace, raw = next(iter(stream(traces).items()))
    tokens = len(read_raw(raw).trajectory.token_ids)

    def said(info: dict[str, Any], **streams: Any) -> bytes:
        branches = [{"index": 0, **streams}] if streams else []
        return orjson.dumps({"version": 1, "trace_id": trace, "info": info, "branches": branches})

    updates = Updates()
    for text in (
        said({"a": {"x": 1, "y": 1}, "advantage": 1.0}, advantages=[0.5] * tokens, entropies=[1.0] * tokens),
        said({"a": {"y": 2}, "advantage": 2.0}, advantages=[0.75] * tokens),
    ):
        updates.add(UpdateAt(trace, 0, len(text), text), "x")
    notes = notes_of(updates, trace, raw)
    assert notes["a"] == {"x": 1, "y": 2}
    assert notes["advantage"] == 2.0
    assert set(notes["advantages"]) == {0.75}
    assert set(notes["entropies"]) == {1.0}


def test_a_node_takes_only_what_covers_it(traces: Path) -> None:
    """A stream that ends within a node, or has a null at a sampled token, leaves that node as it is."""
    trace, raw = next(iter(stream(traces).items()))
    trajectory = read_raw(raw).trajectory
    counts = trajectory.nodes[:, 1].tolist()
    values: list[float | None] = [0.5] * (sum(counts) - 1)
    values[sum(counts[:2]) + 20] = None
    text = orjson.dumps({"trace_id": trace, "info": {}, "branches": [{"index": 0, "entropies": values}]})
    updates = Updates()
    updates.add(UpdateAt(trace, 0, len(text), text), "x")
    notes = notes_of(updates, trace, raw)
    assert notes["entropies"] == [None] * 42 + [0.5] * 40 + [None] * 6


@pytest.mark.parametrize(
    "change",
    [
        {"info": 3},
        {"branches": 3},
        {"branches": [{"advantages": [1.0]}]},
        {"branches": [{"index": "0"}]},
        {"branches": [{"index": 0, "advantages": "x"}]},
        {"branches": [{"index": 0, "advantages": ["x"]}]},
        {"branches": [{"index": 0, "advantages": [[1.0]]}]},
    ],
)
def test_a_malformed_update_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        read_update({"trace_id": "t", "info": {}, "branches": [], **change})


def test_a_late_score_resolves(traces: Path) -> None:
    """A number in `info.reward` is the reward; anything else under that name isn't."""
    trace, raw = next(iter(stream(traces).items()))
    for reward, expected in ((0.5, 0.5), ("good", None)):
        text = orjson.dumps({"trace_id": trace, "info": {"reward": reward}, "branches": []})
        updates = Updates()
        updates.add(UpdateAt(trace, 0, len(text), text), "x")
        assert notes_of(updates, trace, raw).get("reward") == expected


def test_the_recorded_run(samples: Path, dry_run: Run) -> None:
    """9 episodes, 8 of them shipped; updates of two producers; index rows; one annotation each."""
    report = dry_run(samples / "sept2026")
    found = report.eras["E5"]
    assert (found.imported, found.annotations, found.duplicates) == (9, 9, 0)
    assert {reason: counted.count for reason, counted in found.skipped.items()} == {
        "update": 20,
        "stream-index-row": 29,
    }
    assert report.groups == 3


def test_updates_without_their_stream(samples: Path, dry_run: Run) -> None:
    report = dry_run(samples / "sept2026/monitors/file/traces/annotations/orch")
    assert report.eras["E5"].skipped["update-of-unknown-trace"].count == 8


def test_compressed_chunks(samples: Path, tmp_path: Path, dry_run: Run) -> None:
    """Full chunks are zstd; live files are never read."""
    zstandard = pytest.importorskip("zstandard")
    shutil.copytree(samples / "sept2026", tmp_path / "run")
    for file in list((tmp_path / "run").rglob("00000.jsonl")):
        file.with_suffix(".jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(file.read_bytes()))
        file.unlink()
    live = tmp_path / "run/monitors/file/traces/live"
    live.mkdir()
    (live / "abc.jsonl").write_bytes(b"{")
    report = dry_run(tmp_path / "run")
    assert (report.eras["E5"].imported, report.eras["E5"].annotations) == (9, 9)
    assert report.passed["live"].count == 1
    assert report.ok
