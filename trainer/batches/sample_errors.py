"""Errors of one sample: which group and member it is of, and where its record lies (design/trainer#micro-batches).

Guarantees: the message and the error name group, member and offset. Leaves out: finding what is wrong with it
(`sample_limits`, `micro_batches`, `losses`).
"""

from __future__ import annotations

from rolloutlog.contract.errors import SampleUnusable
from rolloutlog.trainer.batches.samples import PackedSample


def unusable(sample: PackedSample, what: str, hint: str | None = None, *, first: str = "") -> SampleUnusable:
    """The error that this sample can't be trained, since `what`; `first` stands before its name."""
    handle = sample.handle
    name = f"member {sample.member} of group {sample.group}"
    place = f"rollouts/{handle.partition}/{handle.offset}"
    return SampleUnusable(f"{first}{name} ({place}): {what}", hint, sample.group, sample.member, str(handle))
