from abc import ABC
from typing import Any, ClassVar, Generic, TypeVar

from aiokafka.protocol.types import Schema

T = TypeVar("T", bound=RequestStruct)

class Request(ABC, Generic[T]):
    """A question, in whatever version the broker understands; made into a struct when it is sent."""

    API_KEY: ClassVar[int]
    def build(self, request_struct_class: type[T]) -> T: ...

class RequestStruct:
    """A question in one version."""

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]
    RESPONSE_TYPE: ClassVar[type[Response]]
    SCHEMA: ClassVar[Schema]
    def __init__(self, *values: Any) -> None: ...

class Response:
    """A decoded answer; its fields are those of the answer's schema, known only at run time."""

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]
    SCHEMA: ClassVar[Schema]
    def to_object(self) -> dict[str, Any]: ...
    def __getattr__(self, name: str) -> Any: ...
