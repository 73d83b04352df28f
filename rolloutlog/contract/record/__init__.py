"""What one attempt sampled: a message graph with its tokens, the slot that it fills, its value, and what makes it
sound."""
