from abc import ABC
from typing import Any

class Request(ABC): ...

class Response:
    """A decoded answer; its fields are those of the answer's schema, known only at run time."""

    def to_object(self) -> dict[str, Any]: ...
    def __getattr__(self, name: str) -> Any: ...
