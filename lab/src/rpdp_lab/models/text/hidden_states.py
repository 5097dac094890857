"""The frozen part of a text classifier, run once: hidden states below the last layer, kept on disk.

Embeddings and all layers but the last do not change in training, so their output for a text never changes
either. It is stored in half precision (a relative rounding of at most 2⁻¹¹) as one array (texts, tokens,
hidden size), zero at padding, in a file whose name is the hash of encoder, vocabulary, texts and length. The
cache holds what the silo's own texts turn into: it is as private as the texts.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.errors import InputError
from rpdp_lab.data.data_files import cache_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.tasks.dataset import Dataset
    from rpdp_lab.models.text.encoder import Encoder
    from rpdp_lab.models.text.pretrained import TextModel

_FORMAT = "rpdp hidden states 1"  # part of every file name's hash; change it when the content would change
_BATCH = 128


def encode_dataset(dataset: Dataset, model: TextModel, *, max_length: int = 64) -> Dataset:
    """The same records with hidden states for texts: float16 (records, tokens, hidden size), for `TextHead`.

    The array is memory-mapped from the cache; the first call for these texts runs the encoder.

    Args:
        dataset: Features are an object array (records, texts per record).
        model: Encoder and tokenizer.
        max_length: Most tokens of a record, with [CLS] and [SEP]; what is longer is cut.
    """
    if dataset.features.dtype != object or dataset.features.ndim != 2:
        raise InputError(f"data set {dataset.name} has no texts: features must be an object array (records, texts)")
    texts = [tuple(row) for row in dataset.features]
    return dataset.with_features(cached_states(texts, model, max_length=max_length))


def cached_states(texts: Sequence[Sequence[str]], model: TextModel, *, max_length: int = 64) -> NDArray[np.float16]:
    """Hidden states of texts or pairs, from the cache or computed into it; changes stay in memory."""
    path = cache_directory() / "hidden-states" / f"{_key(texts, model, max_length)}.npy"
    try:
        return _mapped(path, len(texts))
    except (OSError, EOFError, ValueError):  # not there, or cut short: compute it
        _write(path, texts, model, max_length)
    return _mapped(path, len(texts))


def _mapped(path: Path, rows: int) -> NDArray[np.float16]:
    states = np.load(path, mmap_mode="c")
    if states.dtype != np.float16 or len(states) != rows:
        raise ValueError(f"{path} does not hold the states of {rows} texts")
    result: NDArray[np.float16] = states
    return result


def _key(texts: Sequence[Sequence[str]], model: TextModel, max_length: int) -> str:
    head = f"{_FORMAT}|{model.encoder.fingerprint()}|{model.tokenizer.fingerprint()}|{max_length}|"
    digest = hashlib.sha256(head.encode())
    for parts in texts:
        digest.update(repr(tuple(parts)).encode())
    return digest.hexdigest()[:32]


def _write(path: Path, texts: Sequence[Sequence[str]], model: TextModel, max_length: int) -> None:
    """Compute into a file of its own, then rename: other processes see a whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".partial")
    os.close(handle)
    try:
        _compute(Path(name), texts, model, max_length)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _compute(path: Path, texts: Sequence[Sequence[str]], model: TextModel, max_length: int) -> None:
    tokens = model.tokenizer.batch(texts, max_length)
    shape = (*tokens.ids.shape, model.encoder.config.hidden_size)
    states: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    lengths = tokens.mask.sum(axis=1)
    order = np.argsort(lengths, kind="stable")  # texts of like length together: little padding to compute
    for start in range(0, len(order), _BATCH):
        rows = order[start : start + _BATCH]
        width = int(lengths[rows].max())
        parts = (torch.from_numpy(part[rows, :width]) for part in (tokens.ids, tokens.segments, tokens.mask))
        hidden = _frozen_part(model.encoder, *parts)
        for row, length, state in zip(rows, lengths[rows], hidden, strict=True):
            states[row, :length] = state[:length]


@torch.inference_mode()
def _frozen_part(encoder: Encoder, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> NDArray[Any]:
    hidden: NDArray[Any] = encoder(ids, segments, mask, layers=encoder.config.layers - 1).numpy()
    return hidden
