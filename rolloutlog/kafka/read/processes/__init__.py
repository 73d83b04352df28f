"""Reading by processes of their own, for one that has other things to do: what it sees of them, and what they run."""
