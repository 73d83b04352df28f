"""Weights as files: safetensors with the model's sizes, whole or not there at all (design/live-loop#weights).

Guarantees: a file appears under its name only when it is whole and synced; its name holds the policy and a nonce, so no
two lives of a trainer ever write one name; it is read only if its SHA-256 is the one that was published. Nothing is
unpickled. Leaves out: other places than folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from rolloutlog.contract.errors import RolloutlogError
from rolloutlog.contract.policies import Policy
from rolloutlog.policy.transformer import CausalTransformer, ModelShape


class WeightsUnusable(RolloutlogError):
    """Weights that are missing, cut short, of another digest, or of another model."""


class SavedWeights(NamedTuple):
    """Where weights lie, and the SHA-256 of the file: what `policy.published` says."""

    uri: str
    digest: str


def save_weights(model: CausalTransformer, folder: Path, policy: Policy) -> SavedWeights:
    """Write a model's weights. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    body = save(tensors, metadata={"shape": json.dumps(model.shape.facts(), sort_keys=True)})
    path = folder / f"policy-{policy.timeline}-{policy.version}-{secrets.token_hex(4)}.safetensors"
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    return SavedWeights(path.resolve().as_uri(), hashlib.sha256(body).hexdigest())


def load_weights(uri: str, digest: str | None) -> dict[str, torch.Tensor]:
    """The tensors of published weights; `digest` None: unchecked. Raises WeightsUnusable."""
    body = _read(uri)
    found = hashlib.sha256(body).hexdigest()
    if digest is not None and found != digest:
        raise WeightsUnusable(f"{uri} has the digest {found[:16]}..., not {digest[:16]}... that was published")
    try:
        return load(body)
    except SafetensorError as error:
        raise WeightsUnusable(f"{uri} holds no weights: {error}") from error


def put_weights(model: CausalTransformer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put weights into a model of their sizes, all or none. Raises WeightsUnusable."""
    own = model.state_dict()
    wrong = sorted(own.keys() ^ tensors.keys()) or [n for n, t in own.items() if tensors[n].shape != t.shape]
    if wrong:
        raise WeightsUnusable(f"weights of another model: they differ in {wrong[0]}")
    model.load_state_dict(dict(tensors))


def model_of(uri: str, digest: str | None = None) -> CausalTransformer:
    """The model that a file holds. Raises WeightsUnusable."""
    tensors = load_weights(uri, digest)
    try:
        size = int.from_bytes((body := _read(uri))[:8], "little")
        shape = ModelShape(**json.loads(json.loads(body[8 : 8 + size])["__metadata__"]["shape"]))
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsUnusable(f"{uri} doesn't say the sizes of its model: {error}") from error
    put_weights(model := CausalTransformer(shape), tensors)
    return model


def _read(uri: str) -> bytes:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise WeightsUnusable(f"{uri} lies in no folder", "this engine reads weights from file:// alone")
    try:
        return Path(unquote(parts.path)).read_bytes()
    except OSError as error:
        raise WeightsUnusable(f"{uri} can't be read: {error.strerror}") from error
