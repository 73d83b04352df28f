"""Recorded rollouts of prime-rl and verifiers, of any era, onto the log (design/eras#telling-apart).

Guarantees: `import_runs` writes each recorded trace once, whatever it is told to read and how often; what a source
doesn't say is absent. Leaves out: the command line, and reading the log back into files (`rolloutlog.consumers`).
"""

from __future__ import annotations
