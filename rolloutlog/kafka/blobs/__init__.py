"""Blob stores for bodies too large for the topic: folders and S3, and the claims that lead to them."""
