"""A shard: its fold, its leases, what it asks for and what it emits."""
