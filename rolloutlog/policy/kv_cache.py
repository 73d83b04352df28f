"""Keys and values of what several sequences have read, so that one more token costs one token.

Guarantees: rows are the sequences under way, without gaps: one that leaves is filled by the last; no row sees what
another left behind. Leaves out: which sequence a row is of, which its owner keeps in the same order.
"""

from __future__ import annotations

import torch


class KeyValueCache:
    """Room for `rows` sequences of `context` tokens in each of `layers`; `lengths` are of the rows under way."""

    def __init__(self, *, layers: int, rows: int, heads: int, context: int, width: int) -> None:
        self._keys = torch.zeros(layers, rows, heads, context, width)
        self._values = torch.zeros_like(self._keys)
        self.lengths = torch.zeros(0, dtype=torch.long)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def room(self) -> int:
        """Rows that are free."""
        return self._keys.shape[1] - len(self)

    def begin(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keys and values [B, H, N, D] of new rows, from their start; `admit` makes them count."""
        rows, tokens = slice(len(self), len(self) + len(keys)), keys.shape[2]
        self._keys[layer, rows, :, :tokens], self._values[layer, rows, :, :tokens] = keys, values

    def admit(self, lengths: torch.Tensor) -> None:
        """The rows that were begun have so many tokens; what lies behind is padding."""
        self.lengths = torch.cat([self.lengths, lengths])

    def put(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One more token [B, H, 1, D] of each row; all keys and values that the longest row can see."""
        count, span = len(self), int(self.lengths.max()) + 1
        rows = torch.arange(count)
        self._keys[layer, rows, :, self.lengths] = key[:, :, 0]
        self._values[layer, rows, :, self.lengths] = value[:, :, 0]
        return self._keys[layer, :count, :, :span], self._values[layer, :count, :, :span]

    def visible(self) -> torch.Tensor:
        """Which tokens each row's next one sees, itself included; bool [B, 1, 1, longest + 1]."""
        return (torch.arange(int(self.lengths.max()) + 1) <= self.lengths[:, None])[:, None, None]

    def drop(self, row: int) -> None:
        """A row leaves; the last takes its place."""
        last = len(self) - 1
        if row != last:
            self._keys[:, row], self._values[:, row] = self._keys[:, last], self._values[:, last]
            self.lengths[row] = self.lengths[last]
        self.lengths = self.lengths[:last].clone()

    def clear(self) -> None:
        """No row is under way."""
        self.lengths = self.lengths[:0]
