"""The whole path by the command line, once, with the JSON that it prints (design/commands#facts)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli import main
from rolloutlog.contract.topics import Topic
from rolloutlog.producers.importing.demo_records import demo_run

pytestmark = pytest.mark.broker

CANDIDATE = {"kind", "anchor", "node", "source", "env", "depth", "reward", "policy", "tokens", "messages"}
SEED = CANDIDATE | {"id", "group", "group_size", "partition", "offset"}
GROUP = {"group", "status", "reason", "step", "members"}
MEMBER = {
    "rollout", "attempt", "reward", "status", "verdict", "seq_staleness", "response_tokens", "trainable_tokens",
    "mask_runs",
}  # fmt: skip


class Shell:
    """Runs commands against one namespace of the session's broker."""

    def __init__(self, broker: EmbeddedKafka, namespace: str, config: str) -> None:
        self.broker, self.config = broker, config
        self.shared = ["-n", namespace, "-b", broker.bootstrap_servers, "--config", config]

    def run(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main.app, [*arguments, *self.shared])
        assert done.exit_code == code, f"{arguments}: {done.output} {done.exception}"
        return done.stdout

    def one(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.run(*arguments, "--json"))

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]


@pytest.fixture
def shell(kafka_broker: EmbeddedKafka, tmp_path: Any) -> Shell:
    config = tmp_path / "settings.toml"
    config.write_text("[trainer]\nbatch_groups = 2\nmax_open = 64\novercommit = true\n")
    return Shell(kafka_broker, "cli-path", str(config))


def test_recorded_rollouts_become_seeds_and_trained_groups_and_the_audit_holds(shell: Shell) -> None:
    assert len(shell.one("topics", "create")["topics"]) == 7
    assert not any(topic["created"] for topic in shell.one("topics", "create")["topics"])
    assert shell.one("import", str(demo_run()))["eras"]["E4"]["imported"] == 16

    candidates = shell.lines("candidates")
    assert candidates
    assert all(set(row) == CANDIDATE for row in candidates)
    assert {row["anchor"] for row in candidates} == {"compaction", "tool-call", "recheck"}
    assert all(row["messages"][0]["role"] == "system" for row in candidates), "decisions/replay#58"

    shell.run("buffer", "run", "--drain")
    seeds = shell.lines("seeds", "list")
    assert seeds
    assert all(set(row) == SEED for row in seeds)
    drawn = {(row["source"], row["node"]) for row in seeds}
    assert drawn <= {(row["source"], row["node"]) for row in candidates}
    assert len(drawn) == len(seeds) == len({row["id"] for row in seeds})
    left = {(row["source"], row["node"]) for row in shell.lines("candidates")}
    assert not left & drawn, "a candidate is drawn once"

    groups = shell.lines("groups")
    assert all(set(row) == GROUP and all(set(member) == MEMBER for member in row["members"]) for row in groups)
    imported = [row for row in groups if len(row["members"]) == 4 and row["status"] != "open"]
    assert sorted(row["status"] for row in imported) == ["dropped", "ready", "ready", "ready"]
    assert {row["reason"] for row in imported if row["status"] == "dropped"} == {"zero-variance"}

    assert [row["status"] for row in shell.lines("groups", "--status", "dropped")] == ["dropped"]
    assert shell.lines("groups", "--limit", "2") == groups[:2]
    assert shell.lines("groups", "--group", groups[1]["group"][:12]) == [groups[1]]

    assert shell.one("train", "run", "--no-model", "--drain")["groups"] == 3
    assert shell.one("train", "run", "--no-model", "--drain")["groups"] == 0, "nothing is trained twice"
    shell.run("buffer", "run", "--drain")
    audit = shell.one("audit")
    assert (audit["produced"], audit["trained"], audit["dropped"]) == (16, 12, {"zero-variance": 4})
    assert (audit["ok"], audit["violations"], audit["open_transactions"]) == (True, [], [])

    for topic in Topic:
        assert all(row["topic"] == topic for row in shell.lines("tail", topic)), topic
    other = Shell(shell.broker, "cli-path", str(Path(shell.config).with_name("other.toml")))
    Path(other.config).write_text("[topics]\npartitions = 2\n")
    for looking in (["status"], ["candidates"], ["seeds", "list"], ["groups"], ["audit"]):
        assert other.lines(*looking) == shell.lines(*looking), "who only looks reads the run's own partition count"

    status = shell.one("status")
    assert status["groups"]["ended"] == 4
    assert status["seeds"] == Counter(seed["kind"] for seed in seeds)
    assert all(lag == 0 for shard in status["shards"] for lag in shard["lag"].values())

    assert shell.one("train", "run", "--no-model", "--drain", "--latest")["groups"] == 0
    shell.run("buffer", "run", "--drain")
    groups = shell.one("status")["groups"]
    assert (groups["open"], groups["ended"], groups["ends"]["skipped"]) == (0, 4 + len(seeds), len(seeds))
    assert shell.one("audit")["ok"]


def test_looking_at_single_events(shell: Shell) -> None:
    shell.run("topics", "create")
    shell.run("import", str(demo_run()))
    (first,) = shell.lines("tail", "rollouts", "--limit", "1")
    shown = shell.one("show", f"rollouts/{first['partition']}/{first['offset']}")
    assert shown["headers"] == first["headers"]
    assert len(shown["value"]["token_ids"]) == int(shown["headers"]["tokens"])
    shell.run("show", "rollouts/0/99999", code=1)
    assert shell.lines("dead-letters", "list") == []
    assert all(check["state"] != "bad" for check in shell.lines("doctor"))
