"""Bytes on the log and back: headers, values, claims, and the one validator of what is foreign."""
