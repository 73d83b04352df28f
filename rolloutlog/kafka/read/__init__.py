"""Reading the log: ends, tails, single records, payloads by handle."""
