from abc import ABC

class AbstractPartitionAssignor(ABC):
    @property
    def name(self) -> str: ...
