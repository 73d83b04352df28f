"""The audit: every rollout record counts exactly once."""
