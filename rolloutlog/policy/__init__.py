"""A policy small enough for a laptop: model, tokenizer, weights on disk, and the engine that samples from them.

Real torch, and nothing of Kafka: what is sampled is published by a worker, and what is trained by a trainer.
"""
