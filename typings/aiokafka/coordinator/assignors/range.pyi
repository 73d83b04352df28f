from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

class RangePartitionAssignor(AbstractPartitionAssignor):
    version: int
