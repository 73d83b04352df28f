"""A shard at offsets that it went through: the fold of its rows below them, frozen candidates, and draws again."""
