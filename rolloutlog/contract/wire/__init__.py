"""Bytes on the log and back: headers, arrays, JSON text and claims, and how what can't be one is rejected."""
