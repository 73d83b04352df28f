"""Which groups ended, and from where on a start must read (design/trainer#watermarks)."""

from __future__ import annotations

import tracemalloc

from rolloutlog.buffer.group.ended_ids import EndedIds
from rolloutlog.contract.ids import ended_id
from rolloutlog.trainer.groups.ended_groups import CHUNK, EndedGroups


def test_a_group_has_ended_once_its_step_is_closed() -> None:
    """Until then a resume from the step before would make its final event void."""
    made = EndedGroups()
    made.saw_seed("g", 5)
    made.next_seed = 9
    made.finish("g", 3, 40, first=7)
    made.passed(41)
    assert "g" in made, "nothing more is folded of it"
    made.close(2)
    assert (made.first_event(()), made.first_seed(()), len(made.ids)) == (40, 5, 0)
    made.close(3)
    assert (made.first_seed(()), len(made.ids)) == (9, 1)
    assert made.first_event(()) == 40, "it is in no chunk yet"


def test_a_chunk_takes_the_place_of_the_final_events_in_it() -> None:
    made = EndedGroups()
    for number in range(CHUNK):
        made.finish(f"g{number}", 1, number, first=0)
    made.close(1)
    names = made.chunk_with(())
    assert len(names) == CHUNK
    assert made.chunk_with(["one more"]) == names, "the oldest first, and no more than fit"
    made.take_chunk(names, 5000)
    made.passed(5001)
    assert (made.chunk, made.oldest, made.first_event(())) == (5000, 5000, 5001)
    assert "g7" in made
    assert made.chunk_with(["one more"]) == []


def test_chunks_that_were_read_backwards_say_which_is_the_oldest() -> None:
    made = EndedGroups()
    made.recall(b"".join(ended_id(f"g{offset}") for offset in (90, 50, 10)), 90, 10)
    assert (made.chunk, made.oldest) == (90, 10)
    made.take_chunk([ended_id("late")], 70)
    assert made.chunk == 90, "one that nothing names, since its answer was lost"
    assert all(group in made for group in ("g90", "g50", "g10", "late"))


def test_what_was_said_of_an_open_group_pins_the_mark_until_it_ends() -> None:
    made = EndedGroups()
    made.expire("g", 0, 1, 12)
    made.void("h", 33, 20)
    made.void("h", 30, 22)
    made.passed(60)
    assert made.first_event(()) == 12
    assert made.first_event({"g"}) == 20
    assert made.said["h"].void_below == 33
    for group in ("g", "h"):
        made.finish(group, 1, 60, first=0)
    made.close(1)
    made.expire("g", 0, 2, 61)
    assert not made.said, "an ended group expires no more"


def test_an_ended_group_costs_less_than_64_bytes() -> None:
    """12.7 KB it was."""
    made, count = EndedGroups(), 200_000
    tracemalloc.start()
    try:
        made.ids.fill(b"".join(ended_id(f"group-{i}") for i in range(count)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made.ids) == count
    assert held / count < 64


def test_ids_that_are_filled_in_are_those_that_are_added() -> None:
    """Those that are there already, and zeros at an end, included."""
    names = [ended_id(f"g{i}") for i in range(300)] + [b"x" * 15 + b"\0", b"\0" * 16]
    filled, added = EndedIds(), EndedIds()
    filled.fill(b"")
    assert filled == added
    filled.add(names[:7])
    filled.fill(b"".join([*names, names[3]]))
    added.add(names)
    assert (len(filled), filled) == (302, added)
    filled.fill(b"")
    assert filled == added
