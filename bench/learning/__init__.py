"""A policy that learns in one process without Kafka: the loop's own parts, and nothing of the log between them."""
