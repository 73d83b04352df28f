"""Brokers as processes: their folders, ports, settings, start and diagnosis."""
