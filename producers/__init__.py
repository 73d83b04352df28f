"""What writes to the log: the producer API, rollout workers, importers, and the policies of a run, published and
followed.

Guarantees: a bad record raises a typed error before it is written, every write is awaited, and retries are harmless.
Leaves out: the choice of what to derive (buffer), the judgement of what came back (trainer), and a feeder of fresh
tasks, which is a program of your own (docs/run-workers.md).
"""
