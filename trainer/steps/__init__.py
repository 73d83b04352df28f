"""What a step says: its records, who writes them, what it leaves for the next start, and its report."""
