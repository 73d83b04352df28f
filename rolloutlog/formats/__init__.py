"""Recorded runs of other tools as pure functions: what they wrote is read, and written again for them."""
