"""The services on the log: the buffer service, replay and audit.

Guarantees: each partition goes on from what was committed, with nothing lost and nothing doubled. Leaves out: the
rules themselves, which are pure and stand in buffer, and the trainer's stream, which stands in trainer.
"""
