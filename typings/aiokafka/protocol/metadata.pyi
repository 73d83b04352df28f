from typing import Any

from aiokafka.protocol.api import Request

class MetadataRequest(Request[Any]):
    """Of these topics; an empty list asks for the brokers alone."""

    def __init__(self, topics: list[str] | None = None, allow_auto_topic_creation: bool | None = None) -> None: ...
