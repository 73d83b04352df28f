"""Groups on their way to a train step: what their members sampled, and how they stand."""
