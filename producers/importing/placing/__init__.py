"""Which member of which group a recorded rollout is, beside what the log already has."""
