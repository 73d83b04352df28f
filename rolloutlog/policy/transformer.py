"""A small causal transformer: training over packs of sequences, and decoding with a cache (design/live-loop#model).

Guarantees: a token's logits depend on what lies before it in its own sequence alone, packed, padded or cached, to
float32's last digits. Leaves out: sampling (`decoding`) and losses.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rolloutlog.policy.kv_cache import KeyValueCache


@dataclass(slots=True, frozen=True, kw_only=True)
class ModelShape:
    """Sizes: ids, positions, width, layers and heads."""

    vocabulary: int
    context: int = 64
    width: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads don't divide a width of {self.width}")

    def facts(self) -> dict[str, Any]:
        """As it is kept beside the weights."""
        return asdict(self)


class Block(nn.Module):
    """Attention and a perceptron, each on a normed residual stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention, self.norm_hidden = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.hidden = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def queries(self, stream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value of each token, [B, H, N, D]."""
        b, n, width = stream.shape
        q, k, v = (
            self.qkv(self.norm_attention(stream)).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        return q, k, v

    def follow(self, stream: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The stream after what was attended to, [B, H, N, D]."""
        stream = stream + self.out(attended.transpose(1, 2).reshape(stream.shape))
        return stream + self.hidden(self.norm_hidden(stream))


class CausalTransformer(nn.Module):
    """Learned positions; logits over the vocabulary."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed, self.place = nn.Embedding(shape.vocabulary, shape.width), nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm, self.unembed = nn.LayerNorm(shape.width), nn.Linear(shape.width, shape.vocabulary, bias=False)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, 0, 0.5 / weight.shape[1] ** 0.5)
        nn.init.normal_(self.unembed.weight, 0, 0.02)  # nearly even odds at first, or nothing is explored

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        """Logits [T, V] of packed sequences: ids and positions [T], sequence `i` from `cu_seqlens[i]` on."""
        if not len(input_ids):
            return self.unembed.weight.new_zeros(0, self.shape.vocabulary)
        lengths = cu_seqlens.diff().long()
        rows = torch.repeat_interleave(torch.arange(len(lengths), device=input_ids.device), lengths)
        padded = input_ids.new_zeros(len(lengths), int(lengths.max()))
        padded[rows, position_ids] = input_ids
        return self.whole(padded)[rows, position_ids]

    def whole(self, ids: torch.Tensor, cache: KeyValueCache | None = None) -> torch.Tensor:
        """Logits [B, N, V] of sequences [B, N] from their start; `cache` gets their keys and values as new rows."""
        stream = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for layer, block in enumerate(self._blocks):
            q, k, v = block.queries(stream)
            if cache is not None:
                cache.begin(layer, k, v)
            stream = block.follow(stream, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return self.unembed(self.norm(stream))

    def onward(self, ids: torch.Tensor, cache: KeyValueCache) -> torch.Tensor:
        """Logits [B, V] after one more token [B] of each row of the cache, which gets it."""
        stream = self.embed(ids)[:, None] + self.place(cache.lengths)[:, None]
        mask = cache.visible()
        for layer, block in enumerate(self._blocks):
            q, k, v = block.queries(stream)
            keys, values = cache.put(layer, k, v)
            stream = block.follow(stream, functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask))
        cache.lengths += 1
        return self.unembed(self.norm(stream))[:, 0]

    @property
    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]
