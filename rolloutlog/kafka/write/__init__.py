"""Writing to the log: batches, transactions, and records that fit."""
