"""The group stream: reading, assembling, opening, loading."""
