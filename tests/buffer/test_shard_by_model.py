"""A shard says what the rules say, whatever comes in whatever order, and however often it is restored from what a
compaction left (design/buffer#fold, design/buffer#ended)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from rolloutlog.buffer.index.row_codec import decode
from rolloutlog.buffer.index.rows import Row
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.seeds import Anchor, Draw, Source
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import AnchorKind, SeedKind, Status
from tests.buffer.events_by_hand import UNREAD, annotated, cancelled, expired, final, fresh, rollout, taken
from tests.buffer.partition_log import NOW, PartitionLog, group_id, recall, settings_of
from tests.buffer.plain_shard import Arrived, Cancelled, Expired, Final, Noted, PlainShard, Said, Seeded, Taken

CAPACITY, LEAST_REWARD, MOST_REWARD = 3, 0.5, 1.0
SETTINGS = settings_of(
    buffer={
        "capacity": CAPACITY,
        "keep": {"max_reward": MOST_REWARD},
        "derivations": [
            {
                "name": "continue",
                "derive": {"type": "continue", "anchor": "tool-call"},
                "select": {"min_source_reward": LEAST_REWARD},
            }
        ],
    }
)
FAR = 6
"""Rows that a group may hold alone before it is carried."""
GONE = ("d",)
"""Its origin seed was deleted before anybody read it."""
PLAIN, DERIVED = ("a", "b", "c", *GONE), ("x", "y")
names, members, attempts = st.sampled_from(PLAIN), st.integers(0, 1), st.integers(1, 3)
rewards = st.sampled_from([0.0, 1.0, 2.0])
endings = st.sampled_from([Status.COMPLETED, Status.COMPLETED, Status.COMPLETED, Status.ABORTED, Status.FAILED])


class ShardMachine(RuleBasedStateMachine):
    """Events arrive on the topics, the shard reads them in any order, commits, and is restored."""

    def __init__(self) -> None:
        super().__init__()
        self.log, self.plain = PartitionLog(SETTINGS), PlainShard(CAPACITY, LEAST_REWARD, MOST_REWARD, GONE)
        self.rows: list[Row] = []
        self.shard = self._empty()

    def _empty(self) -> Shard:
        shard = Shard.empty(0, SETTINGS)
        shard.fold.places.far = FAR
        rounds = shard.fold.rounds
        rounds.least, rounds.most_rows, rounds.most_bytes, rounds.ahead = FAR, 1, 1, 0
        return shard

    def _say(self, record: Outgoing, said: Said) -> None:
        self.log.append(record)
        self.plain.said[record.topic].append(said)

    @rule(name=names, member=members, attempt=attempts, status=endings, reward=rewards)
    def arrive(self, name: str, member: int, attempt: int, status: Status, reward: float) -> None:
        at = 0 if name in GONE else UNREAD
        made = rollout(name, member, attempt, status=status, reward=reward, turns=1, origin_offset=at)
        self._say(made, Arrived(name, member, attempt, str(status), reward, f"{status}{reward}"))

    @rule(name=names, whole=st.booleans(), back=st.integers(-1, 3))
    def live(self, name: str, whole: bool, back: int) -> None:
        """What most groups say, in one go."""
        self.seed(name)
        for member in (0, 1) if whole else (0,):
            self.arrive(name, member, 1, Status.COMPLETED, 1.0)
        self.end(name, back)

    @rule(name=st.sampled_from(DERIVED), back=st.integers(0, 3), number=st.integers(0, 6))
    def derive_and_end(self, name: str, back: int, number: int) -> None:
        """A candidate of one of the newest records is drawn, and what was made of it has ended."""
        self.derive(name, max(0, len(self.plain.said[Topic.ROLLOUTS]) - back), number)
        self.end(name, 0)

    @precondition(lambda self: any(isinstance(said, Arrived) for said in self.plain.said[Topic.ROLLOUTS]))
    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        records = [said for said in self.plain.said[Topic.ROLLOUTS] if isinstance(said, Arrived)]
        said = data.draw(st.sampled_from(records))
        self.arrive(said.group, said.member, said.attempt, Status(said.ending), said.reward)

    @rule(name=names, member=members, attempt=attempts, reward=rewards)
    def annotate(self, name: str, member: int, attempt: int, reward: float) -> None:
        self._say(annotated(name, member, attempt, reward=reward), Noted(name, member, attempt, reward))

    @rule(name=st.sampled_from(PLAIN + DERIVED), who=st.sampled_from([(0,), (1,), (0, 1)]), refused=st.booleans())
    def cancel(self, name: str, who: tuple[int, ...], refused: bool) -> None:
        self._say(cancelled(name, [*who], "refused" if refused else "x"), Cancelled(name, who, refused))

    @rule(name=st.sampled_from(PLAIN + DERIVED))
    def take(self, name: str) -> None:
        self._say(taken(name), Taken(name))

    @rule(name=names)
    def seed(self, name: str) -> None:
        if name not in GONE:
            self._say(fresh(name), Seeded(name, None, None))

    @rule(name=st.sampled_from(DERIVED), source=st.integers(0, 12), number=st.integers(0, 6))
    def derive(self, name: str, source: int, number: int) -> None:
        made = fresh(
            name,
            id=id_of(name, source, number),
            kind=SeedKind.CONTINUE,
            derivation="continue",
            source=Source(rollout="r", attempt=1, handle=f"0/{source}/1"),
            anchor=Anchor(kind=AnchorKind.TOOL_CALL, node=3),
            draw=Draw(number=number, rollouts=1, seeds=1, group_events=1, settings="s"),
        )
        self._say(made, Seeded(name, source, number))

    @rule(name=names, member=members, attempt=attempts)
    def expire(self, name: str, member: int, attempt: int) -> None:
        self._say(expired(name, member, attempt), Expired(name, member, attempt))

    @rule(name=st.sampled_from(PLAIN + DERIVED), back=st.integers(-2, 4))
    def end(self, name: str, back: int) -> None:
        as_of = max(0, len(self.plain.said[Topic.ROLLOUTS]) - back)
        self._say(final(name, as_of), Final(name, as_of))

    @rule(topic=st.sampled_from(INPUT_TOPICS), count=st.integers(1, 12))
    def read(self, topic: Topic, count: int) -> None:
        start = self.shard.fold.next_offsets[topic]
        for event in self.log.topics[topic][start : start + count]:
            self.shard.read(event, now=NOW, clock=0.0)

    @rule(order=st.permutations(INPUT_TOPICS))
    def read_all(self, order: list[Topic]) -> None:
        for topic in order:
            self.read(topic, 1 << 30)
        self.commit()

    @rule()
    def commit(self) -> None:
        said = [made for made in self.shard.flush(now=NOW, clock=0.0) if made.topic is Topic.ROLLOUT_INDEX]
        self.shard.committed(range(len(self.rows), len(self.rows) + len(said)) if said else [])
        self.rows += [decode(made.value) for made in said]
        self._compare()

    @rule()
    def restore(self) -> None:
        newest = {row.key: offset for offset, row in enumerate(self.rows)}
        live, self.shard = self.shard, self._empty()
        recall(self.shard, {offset: row for offset, row in enumerate(self.rows) if newest[row.key] == offset})
        self._compare()
        if not live.is_dirty:
            live.fold.groups.settle()
            assert self.shard.fold == live.fold
            assert self.shard.fold.needed == live.fold.needed

    def teardown(self) -> None:
        for topic in INPUT_TOPICS:
            self.read(topic, 1 << 30)
        self.commit()
        self.restore()

    def _compare(self) -> None:
        fold = self.shard.fold
        plain = self.plain.cut(fold.next_offsets)
        assert fold.groups.opened.keys() == {group_id(name) for name in plain.opened}
        for name in plain.opened:
            group = fold.groups.opened[group_id(name)].group
            assert [group.status(m) for m in (0, 1)] == [plain.status(name, m) for m in (0, 1)]
        assert list(fold.pool.sources) == plain.places
        assert [candidate.offset for candidate in fold.pool.live] == plain.live
        assert fold.drawn == len(plain.draws)
        ended = {name: fold.groups.is_forgotten(group_id(name)) for name in plain.finals}
        assert {name for name, forgotten in ended.items() if forgotten} == plain.forgotten
        assert {group_id(name) for name, forgotten in ended.items() if not forgotten} == fold.groups.closed.keys()


ShardMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestShard = ShardMachine.TestCase
