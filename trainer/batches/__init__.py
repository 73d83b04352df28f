"""Tensors of drawn groups, and their advantages."""
