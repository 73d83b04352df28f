"""The command line.

Guarantees: facts on stdout, progress on stderr, the exit codes of the typed errors, and `--help` without torch or
aiokafka: a command loads its room when it is called. Leaves out: all work, which the rooms below do.
"""
