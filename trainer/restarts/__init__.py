"""What a start must know of what was before it on the log (design/trainer#watermarks)."""
