"""What writes rollouts: the producer API, importers, workers, environments and the publication of policies.

Guarantees: a bad record raises a typed error before it is written, every write is awaited, and retries are harmless.
Leaves out: the choice of what to derive (buffer) and the judgement of what came back (trainer).
"""
