"""Sources in columns are what a plain list of them would be, however many came and left (design/buffer#columns)."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.offer import Offer
from rolloutlog.buffer.sources.packed_row import like_row
from rolloutlog.buffer.sources.ranks import Ranks
from rolloutlog.buffer.sources.source_table import SourceTable
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import Status

NOTHING = (0, 0)
ROW = RolloutRow(
    offset=0, size=9, timestamp=0, group="a", group_size=4, needed=4, member=0, attempt=1, status=Status.COMPLETED,
    sha256=b"Z" * 32, env="sums", oldest=Policy(0, 3), newest=Policy(1, 2), packed=b"",
)  # fmt: skip
OFFER = Offer.of(like_row(ROW), (1, 2))


@dataclass
class Plain:
    """A row as it came, and what became of it."""

    row: RolloutRow
    reward: float | None
    dead: bool = False
    heeded: bool = True
    place: int | None = None


def check(table: SourceTable, plain: list[Plain]) -> None:
    assert list(table) == [each.row.offset for each in plain]
    assert len(table) == len(plain)
    for each, found in zip(plain, table.values(), strict=True):
        assert found == table[each.row.offset]
        assert (found.row, found.reward, found.dead) == (each.row, each.reward, each.dead)
        assert (table.is_heeded(found.slot), table.first_row(found.slot)) == (each.heeded, each.place)
        assert table.live[found.slot] == (each.row.offset, 0)
    for group in "abc":
        kin = [each.row.offset for each in plain if each.row.group == group]
        assert [table.offset(slot) for slot in table.kin(group)] == kin[::-1]
        assert table.has_kin(group) == bool(kin)
    assert table.oldest == (table.slot_of(plain[0].row.offset) if plain else None)


actions = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "remove first", "tell", "kill", "place", "compact"]),
        st.integers(0, 30),
        st.sampled_from("abc"),
        st.sampled_from([None, 0.0, 0.5]),
    ),
    max_size=60,
)


@given(actions)
def test_columns_are_what_a_list_of_rows_would_be(said: list[tuple[str, int, str, float | None]]) -> None:
    table, plain = SourceTable(), list[Plain]()
    for offset, (what, number, group, reward) in enumerate(said):
        if what == "add":
            row = replace(ROW, offset=offset, group=group, member=number % 4, reward=reward)
            table.append(row, OFFER, (offset, 0), dead=False, heeded=True)
            plain.append(Plain(row, reward))
        elif what == "compact":
            table.compact()
        elif plain:
            at = 0 if what == "remove first" else number % len(plain)
            each, slot = plain[at], table[plain[at].row.offset].slot
            if what == "tell":
                each.reward = reward
                table.tell(slot, frozenset("n"), reward)
            elif what == "kill":
                each.dead, each.heeded = True, False
                table.kill(slot)
                table.unheed(slot)
            elif what == "place":
                each.place = number
                table.placed(each.row.offset, number)
            else:
                table.remove(slot)
                plain.pop(at)
        check(table, plain)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_ranks_of_many_are_those_of_one_after_another(first: list[int], then: list[int]) -> None:
    ranks, one_by_one = Ranks(first), Ranks()
    for count in first:
        one_by_one.append(count)
    for count in then:
        ranks.append(count)
        one_by_one.append(count)
    each = [slot for slot, count in enumerate(first + then) for _ in range(count)]
    assert ranks.total == one_by_one.total == len(each)
    assert [ranks.find(rank)[0] for rank in range(len(each))] == each
    assert [one_by_one.find(rank) for rank in range(len(each))] == [ranks.find(rank) for rank in range(len(each))]


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 99)))
def test_ranks_that_are_taken_are_those_that_are_found_and_one_less_there(counts: list[int], taken: list[int]) -> None:
    ranks, left = Ranks(counts), [*counts]
    for number in taken:
        if not any(left):
            break
        rank = number % ranks.total
        slot, within = ranks.find(rank)
        assert ranks.take(rank) == (slot, within)
        left[slot] -= 1
        assert (ranks.total, [ranks.before(at) for at in range(len(left))]) == (
            sum(left),
            [sum(left[:at]) for at in range(len(left))],
        )
