from typing import Any

from aiokafka.protocol.api import Request

class LeaveGroupRequest(Request[Any]):
    """A member leaves its group, whoever asks for it."""

    def __init__(self, group: str, member_id: str) -> None: ...
