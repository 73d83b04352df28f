"""Engines that are servers: whoever speaks OpenAI's completions by token ids, such as vLLM and SGLang."""
