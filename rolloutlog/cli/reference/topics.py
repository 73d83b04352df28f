"""The page of topics, from their table.

Guarantees: names, keys, partitions, clean-up and the settings that `topics create` asks for. Leaves out: ACLs
(`rolloutlog topics acls` prints them).
"""

from __future__ import annotations

from rolloutlog.cli.reference import markdown as md
from rolloutlog.contract.topics import MAX_MESSAGE_BYTES, RECORD_MARGIN, TOPICS, TopicSpec

INTRODUCTION = f"""\
On the cluster each topic is `<namespace>.<topic>`; consumer groups and transactional ids have the same prefix, so
that prefixed ACLs fit. P is the partition count of the run and never changes. The partition of a record is
murmur2(key) mod P, as the clients of Java and aiokafka compute it; a librdkafka producer needs
`partitioner=murmur2_random`.

A record may be {MAX_MESSAGE_BYTES - RECORD_MARGIN:,} bytes long with key and headers, uncompressed, unless
`topics.max_message_bytes` says otherwise; a larger body goes to the blob store, and its event carries the claim."""


def page() -> str:
    """docs/reference/topics.md."""
    return md.page(
        "Topics",
        INTRODUCTION,
        md.table(
            ("topic", "key", "partitions", "clean-up", "written by", "read by", "holds"), map(_row, TOPICS.values())
        ),
        "## Settings on the broker",
        md.table(("topic", "settings"), [(md.code(spec.topic), _configs(spec)) for spec in TOPICS.values()]),
    )


def _row(spec: TopicSpec) -> tuple[object, ...]:
    partitions = "P" if spec.partitions is None else spec.partitions
    writers, readers = ", ".join(spec.written_by), ", ".join(spec.read_by)
    return md.code(spec.topic), spec.key, partitions, spec.cleanup, writers, readers, spec.meaning


def _configs(spec: TopicSpec) -> str:
    return ", ".join(md.code(f"{name}={value}") for name, value in spec.configs().items())
