"""compose.yaml: the services of one run, when containers die and when all of it is stopped.

Guarantees: the real images, the real command lines, and a broker that loses its process, not its volume. Leaves out:
what the services compute, which the tests of their rooms specify.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers.account import audit_of, settled
from tests.containers.deadline import until
from tests.containers.recorded import write_run
from tests.containers.stack import Stack, run

pytestmark = [pytest.mark.containers, pytest.mark.timeout(420)]

BATCH = 48
"""Groups a step. A quarter of what may be open beyond it is derived: two groups in each of six shards."""
SETTLES_S = 150


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka, topics, one buffer service and the dispatcher, up."""
    runs = tmp_path_factory.mktemp("runs")
    runs.chmod(0o755)
    stack = Stack(runs, {"ROLLOUTLOG_TRAINER__BATCH_GROUPS": str(BATCH)})
    try:
        stack.build()
        stack.up()
        yield stack
    finally:
        stack.remove()


def test_nothing_is_lost_when_a_consumer_and_the_broker_are_killed(stack: Stack) -> None:
    """Everything is consumed and trained once, no seed is emitted twice, the audit is green
    (design/groups#accounting)."""
    before = audit_of(stack)
    new = write_run(stack.runs / "large", 12 * BATCH, "large")
    stack.up("--scale", "consumers=3")
    stack.compose("run", "--detach", "--rm", "importer", "/runs/large")
    until(lambda: audit_of(stack)["trained"], lambda now: now > before["trained"], "a step", within_s=90)
    killed = stack.containers("consumers")[0]
    run("docker", "kill", killed, *stack.containers("kafka"))
    stack.up("--scale", "consumers=3")
    assert len(stack.containers("consumers")) == 3
    stack.imports("/runs/large")  # the first may have lost its broker
    after = settled(stack, before["produced"] + new, within_s=SETTLES_S)
    assert after.audit["ok"] is True, after.audit
    assert after.audit["trained"] == before["trained"] + new, after.audit
    assert after.audit["produced"] == after.audit["trained"] + sum(after.audit["superseded"].values()), after.audit
    assert len(after.seeds) == len(set(after.seeds)) > 0


def test_down_and_up_loses_nothing(stack: Stack) -> None:
    """A stop drains with exit code 0; the next start goes on from the log, and knows what it has imported."""
    wanted = audit_of(stack)["produced"] + write_run(stack.runs / "small", BATCH, "small")
    stack.imports("/runs/small")
    before = settled(stack, wanted, within_s=SETTLES_S)
    services = stack.containers("consumers") + stack.containers("dispatch")
    stack.compose("stop", "consumers", "dispatch")
    assert {run("docker", "inspect", "--format", "{{.State.ExitCode}}", one).strip() for one in services} == {"0"}
    stack.down()
    assert stack.containers("kafka") == []
    stack.up()
    assert stack.imports("/runs/small") == 0
    after = settled(stack, wanted, within_s=SETTLES_S)
    assert after.audit == before.audit
    assert set(before.seeds) <= set(after.seeds)
    assert len(after.seeds) == len(set(after.seeds))
