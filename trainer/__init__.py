"""The group stream with its verdicts and step transactions, and tensors, losses and the training loop on top of it.

Guarantees: groups are dispatched whole, each ends in exactly one live final event, and a step is one transaction.
Leaves out: torch, outside the modules for tensors, losses and the loop; the dispatch of groups runs without it.
"""
