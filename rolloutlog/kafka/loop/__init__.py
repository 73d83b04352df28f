"""The exactly-once partition loop, and the handler that it serves."""
