"""Rollout workers: seeds under leases, environments, engines, members."""
