"""`train run` with a model: which one, its steps, and what a run folder keeps (design/live-loop#training)."""
