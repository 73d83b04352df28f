"""Recorded runs of other tools: their lines to rollouts (`readers`, `eras`), and rollouts to their lines (`writers`).

Guarantees: pure; what reader and writer of a layout both know stands in one place. Leaves out: files
(`rolloutlog.producers.importing`, `rolloutlog.consumers.exporting`).
"""
