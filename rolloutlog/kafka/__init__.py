"""The only room that speaks Kafka: clients, admin, blob claims, payloads by handle, the exactly-once partition loop.

Guarantees: readers are read_committed, writers idempotent, and each partition's transaction commits its output
together with the offsets of its input. Leaves out: what the records mean, which the rooms above decide.
"""
