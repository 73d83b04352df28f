"""rolloutlog: the data plane of asynchronous RL post-training, kept as an event log on Apache Kafka.

Guarantees: importing the package loads none of its rooms and no dependency; what it offers is loaded when first asked
for. Leaves out: everything else, which lives in the rooms: contract, kafka, broker, cli, producers, consumers, buffer
and trainer.
"""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """Read `__version__` from the installed distribution, only when somebody asks for it."""
    if name == "__version__":
        from importlib.metadata import version

        return version("rolloutlog")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
