"""Who belongs to a group, how its members stand, and what remains of it when it has ended."""
