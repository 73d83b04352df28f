"""Which rollouts may be sources, their candidates, and which of them is drawn."""
