"""A shard: events into its fold, what it asks for and what it emits."""
