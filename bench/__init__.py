"""Measurements: `python -m bench` prints a table and JSON.

Guarantees: each figure is a ratio against a bare loop over the same records in the same run, so it means the same on
every machine. Leaves out: pass or fail, which the reader decides.
"""
