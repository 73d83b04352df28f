"""The trainer's end of the log: the group stream, the staleness rule, step transactions, and tensors of drawn groups.

Guarantees: groups are dispatched whole, each ends in exactly one live final event, and a step is one transaction.
Dispatch runs without torch, which only `rolloutlog.trainer.batches.tensors` imports. Leaves out: losses, the training
loop, and checkpoints.
"""
