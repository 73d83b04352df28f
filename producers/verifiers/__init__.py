"""Environments written against the public API of `verifiers` 0.4, run unchanged: their model is the worker's engine."""
