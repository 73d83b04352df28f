"""Values: what is encoded is decoded, bit for bit, and nothing that isn't a value gets through (design/log#values)."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.events.validation import check_trajectory
from rolloutlog.contract.record import value
from rolloutlog.contract.record.plain_json import encode_json
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.contract.vocabulary import RESOLVES_SLOT, RejectReason
from rolloutlog.contract.wire import arrays, layout
from rolloutlog.contract.wire.arrays import BadBuffer
from rolloutlog.contract.wire.rejection import BadValue
from tests.cases.refusals import reason_of
from tests.cases.rollouts import altered, sound
from tests.cases.strategies import trajectories

SOUND = value.encode(sound("any").trajectory)
NAMES = ("token_ids", "logprobs", "mask", "segments", "nodes")


def as_library_writes(trajectory: Trajectory) -> bytes:
    """The same columns, written by the safetensors library."""
    named = {name: getattr(trajectory, name) for name in NAMES}
    optional = {name: column.array for name, column in trajectory.columns.items()}
    alignments = {name: column.alignment for name, column in trajectory.columns.items()}
    record = np.frombuffer(trajectory.record_text, np.uint8)
    return save({**named, **optional, "record": record}, metadata=alignments or None)


# Round trips


@given(trajectories())
def test_its_nodes_build_the_same_trajectory_again(trajectory: Trajectory) -> None:
    """As a resumed attempt builds on the prefix that it was given."""
    facts = {name: fact for name, fact in trajectory.record.items() if name != "nodes"}
    again = Trajectory.build(trajectory.as_nodes(), facts, trajectory.columns)
    assert again == trajectory


@given(trajectories())
def test_a_value_reads_back_as_what_was_written(trajectory: Trajectory) -> None:
    written = value.encode(trajectory)
    assert value.decode(written) == trajectory
    assert value.encode(value.decode(written)) == written


@given(trajectories())
def test_a_json_value_reads_back_as_what_was_written(trajectory: Trajectory) -> None:
    assert value.decode(encode_json(trajectory), value.JSON) == trajectory


@given(trajectories())
def test_log_probs_keep_every_bit_in_both_forms(trajectory: Trajectory) -> None:
    written = trajectory.logprobs.tobytes()
    assert value.decode(value.encode(trajectory)).logprobs.tobytes() == written
    assert value.decode(encode_json(trajectory), value.JSON).logprobs.tobytes() == written


@given(trajectories())
def test_what_is_encoded_is_sound(trajectory: Trajectory) -> None:
    check_trajectory(value.decode(value.encode(trajectory)))
    check_trajectory(value.decode(encode_json(trajectory), value.JSON))


def test_columns_are_aligned_views_of_the_value() -> None:
    for column in (getattr(value.decode(SOUND), name) for name in NAMES):
        assert column.flags.aligned
        assert not column.flags.writeable
        assert not column.flags.owndata


def test_the_record_is_parsed_only_when_it_is_asked_for() -> None:
    broken = altered(sound("any").trajectory)
    broken.record_text = b"{ not JSON"
    read = value.decode(value.encode(broken))
    assert len(read.token_ids) == 7
    with pytest.raises(ValueError, match="unexpected"):
        _ = read.record


# The safetensors library


@given(trajectories())
def test_the_safetensors_library_reads_what_we_write(trajectory: Trajectory) -> None:
    read = load(value.encode(trajectory))
    for name in NAMES:
        assert np.array_equal(read[name], getattr(trajectory, name))
    assert read["record"].tobytes() == trajectory.record_text
    assert read.keys() == {*NAMES, "record", *trajectory.columns}


@given(trajectories())
def test_we_read_what_the_safetensors_library_writes(trajectory: Trajectory) -> None:
    assert value.decode(as_library_writes(trajectory)) == trajectory


# Two ways to read one layout


@given(trajectories(optional=False))
def test_the_common_layout_is_what_the_general_writer_writes(trajectory: Trajectory) -> None:
    written = value.encode(trajectory)
    columns, metadata = arrays.decode(written)
    assert layout.find(written) is not None
    assert arrays.encode(columns, metadata) == written


@given(trajectories(optional=False), st.data())
def test_the_common_layout_is_found_in_nothing_else(trajectory: Trajectory, data: st.DataObject) -> None:
    written = value.encode(trajectory)
    start = 8 + int.from_bytes(written[:8], "little")
    place = data.draw(st.integers(0, start - 1))
    other = written[:place] + data.draw(st.binary(min_size=1, max_size=1)) + written[place + 1 :]
    assert (layout.find(other) is not None) == (other == written)
    assert layout.find(written + b"x") is None
    assert layout.find(written[: start + len(written[start:]) // 2]) is None


def test_a_record_of_fewer_than_no_bytes_is_no_layout() -> None:
    columns = 5 * 4 + 4 + 12 + 20
    head = layout.write_head(4, 1, 1, 1, -30)
    assert layout.find(head + bytes(columns - 30)) is None


# What isn't a value


@pytest.mark.parametrize(
    "make", [lambda: SOUND, lambda: as_library_writes(sound("any").trajectory)], ids=["ours", "theirs"]
)
def test_a_value_cut_at_any_byte_is_refused(make: Callable[[], bytes]) -> None:
    whole = make()
    for end in range(len(whole)):
        with pytest.raises(BadValue) as refused:
            value.decode(whole[:end])
        assert refused.value.reason is RejectReason.TRUNCATED


def test_a_json_value_cut_at_any_byte_is_refused() -> None:
    whole = encode_json(sound("any").trajectory)
    for end in range(len(whole)):
        with pytest.raises(BadValue) as refused:
            value.decode(whole[:end], value.JSON)
        assert refused.value.reason is RejectReason.NOT_JSON


@given(
    st.binary(max_size=300), st.sampled_from([value.SAFETENSORS, value.JSON, "", "text/plain", "application/json; x"])
)
def test_arbitrary_bytes_are_refused_and_crash_nothing(body: bytes, content_type: str) -> None:
    with pytest.raises(BadValue):
        value.decode(body, content_type)


finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.data())
def test_a_header_that_says_anything_is_read_or_refused(data: st.DataObject) -> None:
    """A safetensors header is foreign text: dtypes, shapes and offsets may be anything."""
    header = orjson.loads(SOUND[8 : 8 + int.from_bytes(SOUND[:8], "little")])
    entry = header[data.draw(st.sampled_from(sorted(header)))]
    numbers = st.integers(-(2**66), 2**66) | finite
    key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    entry[key] = data.draw(st.lists(numbers, max_size=3) | anything)
    if data.draw(st.booleans()):
        header["__metadata__"] = data.draw(anything)
    head = arrays.framed(json.dumps(header).encode())
    reason = reason_of(lambda: value.decode(head + SOUND[8 + int.from_bytes(SOUND[:8], "little") :]))
    assert reason in (None, RejectReason.TRUNCATED, RejectReason.SHAPE)


@given(anything, st.sampled_from([*NAMES, "record", "columns", "more"]))
def test_a_json_value_that_says_anything_is_read_or_refused(said: object, name: str) -> None:
    body = orjson.loads(encode_json(sound("any").trajectory)) | {name: said}
    reason = reason_of(lambda: check_trajectory(value.decode(json.dumps(body).encode(), value.JSON)))
    assert reason is None or reason in RESOLVES_SLOT


def test_columns_that_overlap_or_leave_a_hole_are_refused() -> None:
    for offsets in ([[0, 4], [2, 6]], [[0, 4], [5, 9]]):
        header = {
            name: {"dtype": "I32", "shape": [1], "data_offsets": at} for name, at in zip("ab", offsets, strict=True)
        }
        with pytest.raises(BadBuffer, match="offsets of column b"):
            arrays.decode(arrays.framed(orjson.dumps(header)) + bytes(9))


def test_bytes_behind_the_last_column_are_refused() -> None:
    with pytest.raises(BadBuffer, match="columns end"):
        arrays.decode(arrays.framed(orjson.dumps({})) + b"more")


def test_a_header_too_long_to_be_one_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadBuffer, match="can't hold a header"):
        arrays.decode((2**62).to_bytes(8, "little") + b"{}")


@pytest.mark.parametrize("name", [*NAMES, "record"])
def test_a_missing_column_is_named(name: str) -> None:
    columns, _ = arrays.decode(SOUND)
    del columns[name]
    with pytest.raises(BadValue, match=f"column {name} is missing"):
        value.decode(arrays.encode(columns))


@pytest.mark.parametrize("name", [*NAMES, "record"])
def test_a_column_of_another_dtype_is_refused_by_writer_and_reader(name: str) -> None:
    columns, _ = arrays.decode(SOUND)
    columns[name] = columns[name].astype(np.int64)
    with pytest.raises(BadValue) as refused:
        value.decode(arrays.encode(columns))
    assert refused.value.reason is RejectReason.SHAPE
    if name != "record":
        wrong = altered(sound("any").trajectory)
        setattr(wrong, name, columns[name])
        with pytest.raises(BadValue):
            value.encode(wrong)


def test_an_optional_column_may_not_take_the_name_of_a_required_one() -> None:
    trajectory = sound("any").trajectory
    trajectory.columns["mask"] = Column(np.zeros(7, np.uint8), "token")
    with pytest.raises(BadValue, match="can't be called mask"):
        value.encode(trajectory)


def test_a_column_of_a_dtype_that_does_not_travel_is_refused() -> None:
    trajectory = sound("any").trajectory
    trajectory.columns["words"] = Column(np.array(["a"]), "opaque")
    with pytest.raises(BadValue, match="dtype"):
        value.encode(trajectory)


def test_json_has_no_form_for_a_log_prob_that_is_not_finite() -> None:
    with pytest.raises(ValueError, match="isn't finite"):
        encode_json(altered(sound("any").trajectory, logprobs=[0, 0, 0, np.nan]))


def test_a_reward_that_json_would_make_null_cannot_be_built() -> None:
    """A null reward says pending, so NaN must not become one."""
    with pytest.raises(InvalidRecord, match="reward"):
        Trajectory.build([], {"reward": float("nan")})


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"dtype": "O", "shape": [1], "data": [{}]}, "dtype 'O'"),
        ({"dtype": "(100000,100000)f8", "shape": [1], "data": [1]}, "dtype"),
        ({"dtype": ">i4", "shape": [1], "data": [1]}, "dtype"),
        ({"dtype": "<i4", "shape": [2], "data": [1]}, "reshape"),
        ({"dtype": "<i4", "shape": [1], "data": ["one"]}, "column"),
        ({"dtype": "<i4", "shape": [1], "data": [2**40]}, "column"),
    ],
    ids=lambda case: str(case.get("dtype")) if isinstance(case, dict) else "",
)
def test_a_json_column_that_cannot_be_made_is_refused_before_it_is(column: dict[str, object], said: str) -> None:
    """A dtype is foreign text: some would take all the memory there is."""
    body = orjson.loads(encode_json(sound("any").trajectory)) | {"columns": {"x": column}}
    with pytest.raises(BadValue, match=said.replace("(", r"\(")) as refused:
        value.decode(orjson.dumps(body), value.JSON)
    assert refused.value.reason is RejectReason.SHAPE


@pytest.mark.parametrize(("name", "numbers"), [("token_ids", [2**31] * 7), ("mask", [256] * 7), ("mask", [-1] * 7)])
def test_a_json_number_that_does_not_fit_is_refused_not_wrapped(name: str, numbers: list[int]) -> None:
    body = orjson.loads(encode_json(sound("any").trajectory)) | {name: numbers}
    with pytest.raises(BadValue, match=f"{name}.0"):
        value.decode(orjson.dumps(body), value.JSON)


def test_an_optional_json_column_may_not_take_the_name_of_a_required_one() -> None:
    column = {"dtype": "|u1", "shape": [7], "data": [0] * 7}
    body = orjson.loads(encode_json(sound("any").trajectory)) | {"columns": {"mask": column}}
    with pytest.raises(BadValue, match="can't be called mask"):
        value.decode(orjson.dumps(body), value.JSON)


@pytest.mark.parametrize("key", ["agents", "semantic_parents", "temperature"])
def test_a_record_may_say_a_key_however_it_is_spelt(key: str) -> None:
    """Who isn't told so needn't parse it."""
    spelt = "".join(f"\\u{ord(letter):04x}" for letter in key)
    for text in (f'{{"{key}": 1}}', f'{{"{spelt}": 1}}', f'{{"nodes": [{{"{key[:-1]}{spelt[-6:]}": 1}}]}}'):
        assert empty(text.encode()).may_say(key)
    assert not empty(b'{"nodes": [], "text": "\\n"}').may_say(key)


def empty(text: bytes) -> Trajectory:
    nothing = np.empty(0, np.int32)
    return Trajectory(
        record_text=text, token_ids=nothing, logprobs=nothing.astype(np.float32), mask=nothing.astype(np.uint8),
        segments=nothing.reshape(0, 3), nodes=nothing.reshape(0, 5),
    )  # fmt: skip
