"""Rollouts in the layouts that other tools read: episodes, July's records, Parquet."""
