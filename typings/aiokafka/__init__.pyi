"""Types of what rolloutlog calls of aiokafka 0.14, which ships no py.typed; read off its source."""

from aiokafka.abc import ConsumerRebalanceListener as ConsumerRebalanceListener
from aiokafka.client import AIOKafkaClient as AIOKafkaClient
from aiokafka.consumer import AIOKafkaConsumer as AIOKafkaConsumer
from aiokafka.errors import ConsumerStoppedError as ConsumerStoppedError, IllegalOperation as IllegalOperation
from aiokafka.producer import AIOKafkaProducer as AIOKafkaProducer
from aiokafka.structs import (
    ConsumerRecord as ConsumerRecord,
    OffsetAndMetadata as OffsetAndMetadata,
    OffsetAndTimestamp as OffsetAndTimestamp,
    TopicPartition as TopicPartition,
)

__version__: str
