"""Fixed features of a pair of sentences: their embeddings by a frozen encoder, compared; kept in the cache directory.

Each sentence by itself goes through the whole pretrained encoder; the mean of its last states, of length 1, is its
embedding, as its publisher uses it. A pair of premise u and hypothesis v becomes v, v − u, u·v coordinate by coordinate
and their cosine. Features of a record depend on that record alone, so the promise is that of the training on top; the
encoder itself has seen SNLI, which no promise covers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp_lab.features.array_cache import cached_array
from rpdp_lab.models.text import load_text_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp_lab.models.text import TextModel

SIZE = 384
FEATURES = 3 * SIZE + 1
NOTE = "features: a fixed function of each pair alone, from a frozen encoder of sentences"

_FORMAT = "rpdp sentences 1"  # part of every file name; change it when the content would change
_BATCH = 128
_PRODUCT, _COSINE = 5.0, 3.0
"""Weights that give each part a like say in the length; chosen on seeds from 1001 up."""


def pair_features(pairs: Sequence[tuple[str, str]], *, max_length: int) -> NDArray[np.float32]:
    """Features (pairs, 1153) of length 1; the first call for these pairs runs the encoder.

    Args:
        pairs: Premise and hypothesis.
        max_length: Most tokens of a sentence, with [CLS] and [SEP]; what is longer is cut.
    """
    premises, hypotheses = np.split(
        _cached([text for pair in zip(*pairs, strict=True) for text in pair], max_length), 2
    )
    return compared(premises, hypotheses)


def compared(premises: NDArray[np.float32], hypotheses: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings of premises and hypotheses, each of length 1, to features of length 1."""
    product = premises * hypotheses
    cosine = product.sum(axis=1, keepdims=True)
    parts = [hypotheses, hypotheses - premises, _PRODUCT * product, _COSINE * (cosine - 0.5)]
    together = np.concatenate(parts, axis=1)
    found: NDArray[np.float32] = together / np.linalg.norm(together, axis=1, keepdims=True)
    return found


def _cached(texts: Sequence[str], max_length: int) -> NDArray[np.float32]:
    model = load_text_model()
    head = f"{_FORMAT}|{model.encoder.fingerprint()}|{model.tokenizer.fingerprint()}|{max_length}|"
    digest = hashlib.sha256(head.encode())
    for text in texts:
        digest.update(repr(text).encode())
    return cached_array(f"sentences/{digest.hexdigest()[:32]}", lambda: embedded(texts, model, max_length))


@torch.inference_mode()
def embedded(texts: Sequence[str], model: TextModel, max_length: int) -> NDArray[np.float32]:
    """The mean of the encoder's last states over the tokens of each text, of length 1."""
    tokens = model.tokenizer.batch([(text,) for text in texts], max_length)
    lengths = tokens.mask.sum(axis=1)
    order = np.argsort(lengths, kind="stable")  # texts of like length together: little padding to compute
    found = np.empty((len(texts), model.encoder.config.hidden_size), dtype=np.float32)
    for start in range(0, len(order), _BATCH):
        rows = order[start : start + _BATCH]
        width = int(lengths[rows].max())
        ids, segments, mask = (
            torch.from_numpy(part[rows, :width]) for part in (tokens.ids, tokens.segments, tokens.mask)
        )
        states = model.encoder(ids, segments, mask) * mask[:, :, None]
        found[rows] = torch.nn.functional.normalize(states.sum(dim=1), dim=1).numpy()
    return found
