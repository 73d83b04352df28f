"""Garbage collection: what nobody needs any more is counted for good, then deleted (design/log#seals)."""
