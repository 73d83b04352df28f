"""The training loop's end of the group stream: batches as packs, on one rank or several, told when they are trained."""
