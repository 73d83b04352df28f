"""The live loop on one machine: broker, feeders, workers, buffers and trainer as processes that are watched.

Guarantees: what dies is started again, a bounded number of times, and told; they end in order, with nothing lost, and
none outlives the process that started them, even if that is killed. Leaves out: what the services do, each of which is
a command of its own (`rolloutlog.cli`), and several machines.
"""
