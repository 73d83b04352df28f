"""The replay buffer as pure functions: fold, index, selection, derivations, lineage.

Guarantees: the same events give the same state and draws, on every machine and every day. Leaves out: Kafka, torch,
clocks and files; time comes in as an argument, and payloads as values.
"""
