"""Lines to rollouts, notes and updates, in as many processes as there are cores."""
