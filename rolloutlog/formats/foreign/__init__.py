"""One foreign line: which era it is of, what a glance at it tells, and what reading it gives."""
