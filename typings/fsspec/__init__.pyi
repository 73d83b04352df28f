"""Types of what rolloutlog calls of fsspec, which ships no py.typed; read off its source."""

from fsspec.core import url_to_fs as url_to_fs
from fsspec.spec import AbstractFileSystem as AbstractFileSystem

__version__: str

def filesystem(protocol: str, **storage_options: object) -> AbstractFileSystem: ...
