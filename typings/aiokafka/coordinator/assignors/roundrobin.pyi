from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    version: int
