"""What a step says: its records, what it leaves for the next start, and its report."""
