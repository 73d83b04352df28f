"""A fold: its state, how rows change it, and where they lie (design/buffer#fold)."""
