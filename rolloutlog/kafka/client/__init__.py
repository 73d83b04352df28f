"""The cluster: connections, security, topics and rights, and what the failures of the client mean."""
