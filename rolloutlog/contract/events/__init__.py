"""The events of the log, one file a topic, and what all share: `event`, `body` and `validation`."""
