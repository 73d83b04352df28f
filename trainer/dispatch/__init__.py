"""What becomes of a group at a train step, and in which order groups go."""
