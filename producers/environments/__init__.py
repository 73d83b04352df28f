"""Environments as tasks, turns and a score, and the conversation that a worker has in them.

`task_environment` is the seam, `task_conversation` runs it with any engine; `reversal`, `lookup` and `recall` are small
deterministic ones, of which a policy learns on two cores.
"""
