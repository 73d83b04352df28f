"""The contract: events, headers, records, ids, topics and errors.

Guarantees: pure values and functions that every other room shares; nothing here knows Kafka, torch, clocks or files.
Leaves out: behaviour, which belongs to the rooms above.
"""
