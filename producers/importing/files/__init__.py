"""The files of a recorded run: which there are, what they are, and their lines by spans."""
