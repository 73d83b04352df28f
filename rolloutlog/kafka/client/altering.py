"""Changing single settings of topics on the broker.

Guarantees: only the settings that are named change. Leaves out: which ones, and why (`admin`).

aiokafka 0.14 has the older request alone, which resets every setting that it doesn't name, so this speaks
IncrementalAlterConfigs itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import NoError, for_code

from rolloutlog.kafka.client.inner_parts import (
    Array,
    Boolean,
    Int8,
    Int16,
    Int32,
    Request,
    RequestStruct,
    Response,
    Schema,
    String,
    send_by_admin,
)

API_KEY = 44
SET = 0
"""The operation: put this value in the place of what is there."""

TEXT = String("utf-8")


class _Answer(Response):
    API_KEY = API_KEY
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("resources", Array(("error_code", Int16), ("error_message", TEXT), ("type", Int8), ("name", TEXT))),
    )


class _Question(RequestStruct):
    API_KEY = API_KEY
    API_VERSION = 0
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("type", Int8),
                ("name", TEXT),
                ("configs", Array(("name", TEXT), ("operation", Int8), ("value", TEXT))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _Alter(Request[_Question]):
    API_KEY = API_KEY

    def __init__(self, changes: Mapping[str, Mapping[str, str]]) -> None:
        self._changes = changes

    def build(self, request_struct_class: type[_Question]) -> _Question:
        resources = [
            (int(ConfigResourceType.TOPIC), topic, [(name, SET, value) for name, value in configs.items()])
            for topic, configs in self._changes.items()
        ]
        return request_struct_class(resources, False)


async def alter_topics(admin: AIOKafkaAdminClient, changes: Mapping[str, Mapping[str, str]]) -> None:
    """Set what `changes` says of each topic. Raises KafkaError with the broker's reason."""
    answer = await send_by_admin(admin, _Alter(changes))
    for code, said, _, name in answer.resources:
        if (error := for_code(code)) is not NoError:
            raise error(f"{name}: {said}")
