"""Every role works with exactly the rights that are printed for it, and says which one is missing, on real Kafka."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.replaying.freezing import freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.consumers.replaying.seed_check import check_seeds
from rolloutlog.consumers.replaying.source_choice import choose_source
from rolloutlog.consumers.views.run_status import status
from rolloutlog.consumers.views.seed_view import candidate_rows
from rolloutlog.contract.errors import NotAllowed
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.acls import Right, acls
from rolloutlog.kafka.client.admin import create_topics, delete_topics, describe_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.producer import RolloutProducer
from tests.cases.rollouts import sound
from tests.secured.cluster import SecuredKafka
from tests.secured.wire import allow, forbid_only, log_what_is_asked
from tests.secured.work import LIVE, NAMESPACES, SHORT, WORK, prepare, rights_in, settings_for

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

ASKED = re.compile(
    r"Principal = User:(\S+) is Allowed operation = (\w+) .* on resource = (\w+):LITERAL:(\S+) "
    r"for request = (?!Metadata)"
)
"""What Metadata asks is which rights one has, not to use one."""
KINDS: dict[str, str] = {"Topic": "topic", "Group": "group", "TransactionalId": "transactional-id"}
IMPLIED = {"Describe": {"Read", "Write", "Delete"}, "DescribeConfigs": {"AlterConfigs"}}
"""Rights that come with another one."""


ONE_BY_ONE = [
    replace(right, operations=(operation,))
    for role, (namespace, _) in WORK.items()
    for right in rights_in(namespace, role)
    for operation in right.operations
]


def name_of(right: Right) -> str:
    return f"{right.role}-{right.operations[0]}-{right.resource}-{right.name}"


@pytest.fixture(scope="module")
def allowed(secured: SecuredKafka) -> SecuredKafka:
    """The cluster with everybody's rights, and with what makes every role say all that it can."""

    async def make() -> None:
        for namespace in NAMESPACES:
            await prepare(settings_for(namespace, bootstrap_servers=secured.admin))
            for role in Role:
                await allow(secured.admin, role, rights_in(namespace, role))

    asyncio.run(make())
    return secured


def both(secured: SecuredKafka, role: Role, folder: Path) -> tuple[Settings, Settings]:
    """Settings of the role's user, and of the administrator."""
    path = folder / f"{role}.properties"
    path.write_text(secured.properties(role))
    namespace, _ = WORK[role]
    return (
        settings_for(namespace, command_config=str(path)),
        settings_for(namespace, bootstrap_servers=secured.admin),
    )


def test_every_role_works_with_the_rights_that_are_printed_and_uses_them_all(
    allowed: SecuredKafka, tmp_path: Path
) -> None:
    """What Kafka's authorizer was asked is what is printed, no more and no less."""

    async def work() -> None:
        await log_what_is_asked(allowed.admin)
        for role, (_, does) in WORK.items():
            try:
                await does(*both(allowed, role, tmp_path))
            except Exception as error:
                error.add_note(f"as {role}")
                raise

    asyncio.run(work())
    logs = (allowed.broker.data_dir / "broker" / "node-1").glob("server.log*")
    log = "".join(path.read_text() for path in logs)
    asked: set[tuple[str, str, str, str]] = {
        (user, "".join(word.capitalize() for word in operation.split("_")), str(KINDS.get(kind, kind)), name)
        for user, operation, kind, name in ASKED.findall(log)
    }
    unused = [right for right in ONE_BY_ONE if not any(covers(right, one) for one in asked)]
    assert not unused, " ".join(map(name_of, unused))


def covers(right: Right, asked: tuple[str, str, str, str]) -> bool:
    user, operation, kind, name = asked
    place = name.startswith(right.name) if right.pattern == "prefixed" else name == right.name
    return (user, operation, kind) == (right.role, right.operations[0], right.resource) and place


def quick_or_slow(rights: list[Right]) -> list[Any]:
    """Groups and transactional ids, and of each role's topics the first, are tried in every run of the tests."""
    seen, found = set[tuple[Role, str]](), list[Any]()
    for right in rights:
        is_slow = right.resource == "topic" and (right.role, right.resource) in seen
        seen.add((right.role, right.resource))
        found.append(pytest.param(right, id=name_of(right), marks=[pytest.mark.slow] if is_slow else []))
    return found


@pytest.mark.parametrize("right", quick_or_slow(ONE_BY_ONE))
def test_a_role_that_lacks_one_right_says_which(allowed: SecuredKafka, tmp_path: Path, right: Right) -> None:
    async def body() -> None:
        await forbid_only(allowed.admin, right.role, right)
        try:
            with pytest.raises(NotAllowed) as refused:
                await WORK[right.role][1](*both(allowed, right.role, tmp_path))
        finally:
            await allow(allowed.admin, right.role, [right])
        said = refused.value.message
        assert right.operations[0] in said
        assert right.resource in said
        assert right.name in said
        assert f"user {right.role} lacks" in said
        assert f"the role {right.role} needs" in said

    asyncio.run(body())


def test_a_right_that_is_taken_away_while_one_works_is_named_too(allowed: SecuredKafka, tmp_path: Path) -> None:
    settings, _ = both(allowed, Role.PRODUCERS, tmp_path)
    name = f"{settings.namespace}.{Topic.ROLLOUTS}"
    (right,) = (one for one in ONE_BY_ONE if (one.role, one.name, *one.operations) == (Role.PRODUCERS, name, "Write"))

    async def body() -> None:
        with pytest.raises(NotAllowed, match=f"user producers lacks Write.* on topic {name}"):
            async with RolloutProducer(settings) as producer:
                await producer.publish(sound("first"))
                await forbid_only(allowed.admin, right.role, right)
                try:
                    await producer.publish(sound("second"))
                finally:
                    await allow(allowed.admin, right.role, [right])

    asyncio.run(body())


def test_who_may_see_no_topic_is_told_that_none_may_be_there(allowed: SecuredKafka, tmp_path: Path) -> None:
    path = tmp_path / "nobody.properties"
    path.write_text(allowed.properties("nobody"))
    settings = settings_for("made", command_config=str(path))

    async def body() -> None:
        connection = await connect(settings, Role.OPERATOR, ())
        for ask in (describe_topics, delete_topics):
            with pytest.raises(NotAllowed, match=r"user nobody lacks Describe .*there, Kafka doesn't say"):
                await ask(connection)
        with pytest.raises(NotAllowed, match=r"lacks Create, Delete, AlterConfigs on topic made\.rollouts"):
            await connect(settings, Role.OPERATOR)

    asyncio.run(body())


def test_status_says_what_it_can_to_who_may_not_see_the_groups(allowed: SecuredKafka, tmp_path: Path) -> None:
    settings, _ = both(allowed, Role.PEOPLE, tmp_path)
    (right,) = (one for one in ONE_BY_ONE if one.role is Role.PEOPLE and one.name == f"{settings.namespace}.workers")

    async def body() -> None:
        await forbid_only(allowed.admin, right.role, right)
        try:
            found = await status(settings)
        finally:
            await allow(allowed.admin, right.role, [right])
        assert (found["owners"], found["run"]["partitions"]) == (None, 1)

    asyncio.run(body())


def test_a_run_that_draws_on_another_needs_the_rights_on_it_that_are_printed(
    allowed: SecuredKafka, tmp_path: Path
) -> None:
    """Each role with its own user; without them it says which namespace's rollouts it may not read."""
    new = "new"

    def of(role: Role) -> Settings:
        path = tmp_path / f"{role}.properties"
        path.write_text(allowed.properties(role))
        return settings_for(new, command_config=str(path))

    async def body() -> None:
        await freeze(settings_for(LIVE, bootstrap_servers=allowed.admin), tmp_path / "frozen", Until())
        rights = [right for right in acls(new, LIVE) if right.name.startswith(f"{LIVE}.")]
        for role in (Role.OPERATOR, Role.BUFFER, Role.REPLAY, Role.PEOPLE):
            await allow(allowed.admin, role, rights_in(new, role))
            await allow(allowed.admin, role, [right for right in rights if right.role is role])
        operator = of(Role.OPERATOR)
        connection = await connect(operator, Role.OPERATOR)
        await create_topics(connection, operator)
        await declare(connection, operator, await choose_source(operator, tmp_path / "frozen"))
        there = [row async for row in candidate_rows(of(Role.PEOPLE))]  # folds the source itself, as does freezing
        assert (await freeze(of(Role.REPLAY), tmp_path / "new", Until())).candidates == len(there)
        (right,) = (right for right in rights if right.role is Role.BUFFER)
        await forbid_only(allowed.admin, Role.BUFFER, right)
        with pytest.raises(NotAllowed, match=rf"user buffer lacks .*{LIVE}\.rollouts"):
            await run_buffer(of(Role.BUFFER), drain=True, options=SHORT)
        await allow(allowed.admin, Role.BUFFER, [right])
        await run_buffer(of(Role.BUFFER), drain=True, options=SHORT)
        assert (await check_seeds(of(Role.REPLAY))).ok

    asyncio.run(body())
