"""Rows of `rollout-index`: what a shard keeps of each event, and how it is made."""
