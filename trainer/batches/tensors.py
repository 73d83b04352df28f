"""Tensors of samples: packed without padding, or padded on request (design/trainer#tensors).

Guarantees: every tensor of a token is aligned with `labels`; nothing is copied between devices but by `to`. Leaves out:
which tokens train (`samples`), which samples make a pack (`micro_batches`), and losses (`losses`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import torch

from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.advantages import Estimator
from rolloutlog.trainer.batches.column_memory import ColumnMemory, ColumnRoom
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.samples import PackedSample, SampleTable, samples_of
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.batches.token_axis import I64, OWN
from rolloutlog.trainer.dispatch.batch import DrawnGroup

ROW_BYTES = 3 * 8 + 8 * 4
"""Of a token, but for columns that were asked for by name."""


@dataclass(slots=True, frozen=True, kw_only=True)
class PackedBatch:
    """S sequences one after another, T tokens in all; sequence `i` is `[cu_seqlens[i], cu_seqlens[i + 1])`.

    Of each token: `input_ids`, `labels` (the next token, or -100) and `position_ids`, i64 [T]; of its label the
    `behaviour_logprobs`, `advantages` (0 where there is none), `temperature`, `top_p` and `top_k` (NaN where nobody
    says), f32 [T], the policy's `timelines` and `versions` (-1 where it wasn't sampled), i32 [T]; `sample_index` i32
    [T]. Of each sequence: `cu_seqlens` i32 [S + 1], as variable-length attention takes it, `member_index`,
    `group_index` and `agent_index`, i32 [S], `rewards` f32 [S], `truncated` bool [S]. `extra` are columns that were
    asked for by name, [T, ...]. `samples` say where each sequence comes from, and why it stopped.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor
    behaviour_logprobs: torch.Tensor
    advantages: torch.Tensor
    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    timelines: torch.Tensor
    versions: torch.Tensor
    sample_index: torch.Tensor
    cu_seqlens: torch.Tensor
    member_index: torch.Tensor
    group_index: torch.Tensor
    agent_index: torch.Tensor
    rewards: torch.Tensor
    truncated: torch.Tensor
    samples: tuple[PackedSample, ...]
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    @classmethod
    def of(cls, table: SampleTable, room: ColumnRoom | None = None) -> Self:
        """All samples of a table, in its order."""
        room, lengths = room or ColumnMemory().room(0), table.lengths
        columns = table.rows.columns(room)
        owned = {name: _shared(columns.pop(name)) for name in OWN}
        return cls(
            **owned,
            position_ids=_shared(_positions(lengths, room)),
            sample_index=_shared(_owners(lengths, room)),
            cu_seqlens=_tensor(np.append(0, np.cumsum(lengths)), np.int32),
            member_index=_tensor(table.member, np.int32),
            group_index=_tensor(table.group, np.int32),
            agent_index=_tensor(np.array([s.agent for s in table.samples]), np.int32),
            rewards=_tensor(np.array([s.reward for s in table.samples]), np.float32),
            truncated=_tensor(np.array([s.truncated for s in table.samples]), np.bool_),
            samples=table.samples,
            extra={name: _shared(column) for name, column in columns.items()},
        )

    @classmethod
    def each(cls, tables: Sequence[SampleTable], memory: ColumnMemory | None = None) -> list[Self]:
        """A pack of each table; tensors of all lie in one memory, which isn't free before the last of them is."""
        rows = sum(int(table.lengths.sum()) for table in tables)
        room = (memory or ColumnMemory()).room(rows * ROW_BYTES)
        return [cls.of(table, room) for table in tables]

    @property
    def loss_mask(self) -> torch.Tensor:
        """Which labels are in the loss, bool [T]."""
        return self.labels != IGNORED

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.cu_seqlens.diff().max()) if self.samples else 0

    @property
    def trainable_tokens(self) -> int:
        """Tokens in the loss."""
        return int(self.loss_mask.sum())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The same on another device."""
        moved = {
            each.name: value.to(device, non_blocking=non_blocking)
            for each in fields(self)
            if isinstance(value := getattr(self, each.name), torch.Tensor)
        }
        extra = {name: value.to(device, non_blocking=non_blocking) for name, value in self.extra.items()}
        return replace(self, **moved, extra=extra)

    def padded(self, values: torch.Tensor, fill: float = 0) -> torch.Tensor:
        """A tensor of tokens [T, ...] as rows of sequences, [S, longest, ...], filled up at the end."""
        made = values.new_full((len(self.samples), self.longest, *values.shape[1:]), fill)
        made[self.sample_index.long(), self.position_ids] = values
        return made


def pack(
    groups: Iterable[DrawnGroup],
    *,
    estimator: Estimator = Estimator.GRPO,
    sampling: Sampling | None = None,
    columns: Sequence[str] = (),
) -> PackedBatch:
    """All samples of drawn groups (a `Batch`, or some of its groups) in one pack, as `samples_of` makes them."""
    return PackedBatch.of(samples_of(groups, estimator=estimator, sampling=sampling, columns=columns))


def _positions(lengths: I64, room: ColumnRoom) -> I64:
    made, every = room.empty(int(lengths.sum()), np.int64), np.arange(int(lengths.max(initial=0)))
    if len(lengths):
        np.concatenate([every[:length] for length in lengths.tolist()], out=made)
    return made


def _owners(lengths: I64, room: ColumnRoom) -> Array:
    made = room.empty(int(lengths.sum()), np.int32)
    made[:] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return made


def _shared(array: Array) -> torch.Tensor:
    """A tensor in the array's memory; half of what `as_tensor` takes."""
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType] - torch's stub says `ndarray` alone


def _tensor(array: Array, dtype: type[Any]) -> torch.Tensor:
    return _shared(np.ascontiguousarray(array, dtype=dtype))
