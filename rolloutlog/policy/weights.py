"""Weights as files: safetensors with the model's sizes, whole or not there at all (design/live-loop#weights).

Guarantees: a file appears under its name only when it is whole and, in a folder, synced; its name holds the policy and
a nonce, so no two lives of a trainer ever write one name; it is read only if its SHA-256 is the one that was published.
Nothing is unpickled. A place is a folder, or a URL that fsspec knows. Leaves out: when a file may go
(`rolloutlog.trainer.training.kept_weights`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import torch
from fsspec import AbstractFileSystem, url_to_fs
from safetensors import SafetensorError
from safetensors.torch import load, save

from rolloutlog.contract.errors import SettingsError, WeightsUnusable, WeightsUnwritten
from rolloutlog.contract.policies import Policy
from rolloutlog.policy.transformer import CausalTransformer, ModelShape

NAMED = re.compile(r"policy-(\d+)-(\d+)-[0-9a-f]{8}\.safetensors")


class SavedWeights(NamedTuple):
    """Where weights lie, and the SHA-256 of the file: what `policy.published` says."""

    uri: str
    digest: str


def save_weights(model: torch.nn.Module, place: Path | str, policy: Policy) -> SavedWeights:
    """Write a model's weights. Raises WeightsUnwritten, SettingsError."""
    body = weights_of(model)
    name = f"policy-{policy.timeline}-{policy.version}-{secrets.token_hex(4)}.safetensors"
    try:
        return SavedWeights(_write(str(place), name, body), hashlib.sha256(body).hexdigest())
    except Exception as error:  # whatever the store behind a URL raises
        raise WeightsUnwritten(f"the weights of policy {policy} can't be written to {place}: {error}") from error


def weights_of(model: torch.nn.Module) -> bytes:
    """A model's weights in one buffer, with its sizes where it is one of ours. Tensors that share memory are whole.
    Raises SettingsError for a state that safetensors can't hold."""
    state = model.state_dict()
    if odd := [name for name, tensor in state.items() if not isinstance(tensor, torch.Tensor)]:
        raise SettingsError(
            f"weights can't hold {odd[0]} of the model, a {type(state[odd[0]]).__name__}", "tensors alone"
        )
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    sizes = json.dumps(model.shape.facts(), sort_keys=True) if isinstance(model, CausalTransformer) else None
    try:
        return save(tensors, metadata={"shape": sizes} if sizes else None)
    except KeyError as error:  # a dtype that files lack
        raise SettingsError(f"weights can't hold tensors of {error.args[0]}", "plain dtypes alone") from error


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


def put_weights(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put weights into a model of their sizes, all or none. Raises WeightsUnusable."""
    own = model.state_dict()
    wrong = sorted(own.keys() ^ tensors.keys()) or [n for n, t in own.items() if tensors[n].shape != t.shape]
    if wrong:
        raise WeightsUnusable(f"weights of another model: they differ in {wrong[0]}")
    model.load_state_dict(dict(tensors))


def weights_in(folder: Path) -> list[str]:
    """URLs of what `save_weights` wrote to a folder, in the order of their policies."""
    found = ((policy, path) for path in folder.glob("*.safetensors") if (policy := policy_of(path.name)) is not None)
    return [path.absolute().as_uri() for _, path in sorted(found)]


def policy_of(uri: str) -> Policy | None:
    """Whose weights are there, by the name that `save_weights` gave; None for another name."""
    named = NAMED.fullmatch(uri.rpartition("/")[2])
    return None if named is None else Policy(int(named[1]), int(named[2]))


def remove_weights(uri: str) -> None:
    """Take weights away; those that aren't there are. Raises WeightsUnwritten."""
    try:
        fs, path = _store(uri)
        with suppress(FileNotFoundError):
            fs.rm_file(path)
    except Exception as error:  # whatever the store behind a URL raises
        raise WeightsUnwritten(f"{uri} can't be removed: {error}") from error


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


def _write(place: str, name: str, body: bytes) -> str:
    """Under a temporary name first; its URL."""
    fs, root = _store(place)
    fs.makedirs(root, exist_ok=True)
    path, partial = f"{root}/{name}", f"{root}/{name}.partial"
    try:
        with fs.open(partial, "wb") as file:
            file.write(body)
            if getattr(fs, "local_file", False):
                file.flush()
                os.fsync(file.fileno())
        fs.mv(partial, path)
    except BaseException:
        with suppress(Exception):  # of a store that fails; a full one shall not be fuller after every try
            fs.rm_file(partial)
        raise
    return Path(path).as_uri() if getattr(fs, "local_file", False) else fs.unstrip_protocol(path)


def _read(uri: str) -> bytes:
    try:
        fs, path = _store(uri)
        return fs.cat_file(path)
    except Exception as error:
        said = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        raise WeightsUnusable(f"{uri} can't be read: {said}") from error


def _store(place: str) -> tuple[AbstractFileSystem, str]:
    """The store of a folder or a URL, and the path in it; names in file:// URLs are quoted."""
    parts = urlsplit(place)
    fs, path = url_to_fs(unquote(parts.path) if parts.scheme == "file" else place, use_listings_cache=False)
    return fs, path.rstrip("/")
