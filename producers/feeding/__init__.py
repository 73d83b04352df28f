"""Fresh tasks onto the log: where they come from, how many may be open, and rounds of evaluation."""
