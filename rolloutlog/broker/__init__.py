"""The embedded broker: Apache Kafka itself as a child process, with nothing installed before.

Guarantees: what runs is the pinned release, checked by digest, found again by its state file, and without orphans where it
is owned. Leaves out: any emulation, and every client of Kafka: the rest of the project knows a broker by address only.
"""
