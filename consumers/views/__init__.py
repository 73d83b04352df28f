"""What people see of the log: events, seeds, shards and the state of a run."""
