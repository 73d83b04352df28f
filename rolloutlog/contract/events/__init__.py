"""What is said on the log, one file a topic."""
