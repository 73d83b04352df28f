"""The demonstrations: a live loop that learns, watched as it does, and the walk over a recorded run."""
