from collections.abc import Mapping

class NewTopic:
    """Partitions and replication -1 mean that `replica_assignments` says both."""

    name: str
    num_partitions: int
    replication_factor: int
    replica_assignments: dict[int, list[int]]
    topic_configs: dict[str, str]
    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None: ...
