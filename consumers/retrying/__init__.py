"""Trying dead letters again, once what they were rejected for is mended (`rolloutlog dead-letters retry`)."""
