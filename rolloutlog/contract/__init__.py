"""What every part agrees on: events, headers, records, the codec, ids, the table of topics, errors and settings.

Guarantees: values in, values out; foreign bytes are validated here once and are plain slotted values afterwards.
Leaves out: Kafka, torch, clocks and files. Every other room may import this one, and it imports none of them.
"""
