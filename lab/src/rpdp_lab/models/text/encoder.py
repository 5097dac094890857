"""The encoder of BERT (Devlin et al. 2019, arXiv 1810.04805) out of plain `nn.Linear` and `nn.LayerNorm`.

Private training hooks these layers, so attention is made of its four projections and not of a fused module;
it is written out because torch's fused attention has no rule for `vmap`. There is no dropout.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from rpdp.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of a BERT encoder."""

    vocabulary_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    positions: int = 512
    segments: int = 2
    norm_epsilon: float = 1e-12

    def __post_init__(self) -> None:
        if self.hidden_size % self.heads:
            raise InputError(f"hidden_size={self.hidden_size} must be a multiple of heads={self.heads}")
        if self.layers < 1:
            raise InputError(f"layers={self.layers} must be at least 1")

    @classmethod
    def read(cls, path: Path) -> EncoderConfig:
        """From the `config.json` of a published BERT model."""
        stored = json.loads(path.read_text(encoding="utf8"))
        wanted = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
        for key, value in wanted.items():
            if stored.get(key, value) != value:
                raise InputError(f"{path}: {key}={stored[key]!r} is not supported, only {value!r}")
        return cls(
            vocabulary_size=stored["vocab_size"],
            hidden_size=stored["hidden_size"],
            layers=stored["num_hidden_layers"],
            heads=stored["num_attention_heads"],
            intermediate_size=stored["intermediate_size"],
            positions=stored["max_position_embeddings"],
            segments=stored["type_vocab_size"],
            norm_epsilon=stored["layer_norm_eps"],
        )


class Embeddings(nn.Module):
    """The sum of word, position and segment embeddings, normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.positions = nn.Embedding(config.positions, config.hidden_size)
        self.segments = nn.Embedding(config.segments, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_epsilon)

    def forward(self, ids: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Token ids and segment numbers (texts, tokens) to vectors (texts, tokens, hidden size)."""
        places = torch.arange(ids.shape[1], device=ids.device)
        total = self.words(ids) + self.segments(segments) + self.positions(places)
        vectors: torch.Tensor = self.norm(total)
        return vectors


class EncoderLayer(nn.Module):
    """Self-attention and a two-layer perceptron, each with a residual connection and then a normalisation."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.attention_output = nn.Linear(config.hidden_size, config.hidden_size)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_epsilon)
        self.expand = nn.Linear(config.hidden_size, config.intermediate_size)
        self.contract = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_epsilon)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor, *, first_only: bool = False) -> torch.Tensor:
        """Hidden states (texts, tokens, size) to the next ones; `mask` (texts, tokens) is True at tokens.

        With `first_only` just the first token's state is computed, (texts, 1, hidden size), the same as in
        the full
        result: no token's output needs another's.
        """
        wanted = hidden[:, :1] if first_only else hidden
        query = self._by_head(self.query(wanted))
        key = self._by_head(self.key(hidden))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(~mask[:, None, None, :], -torch.inf).softmax(dim=-1)
        attended = weights @ self._by_head(self.value(hidden))
        attention = self.attention_output(attended.transpose(1, 2).flatten(2))
        middle = self.attention_norm(attention + wanted)
        result: torch.Tensor = self.output_norm(self.contract(functional.gelu(self.expand(middle))) + middle)
        return result

    def _by_head(self, projected: torch.Tensor) -> torch.Tensor:
        texts, tokens, size = projected.shape
        return projected.view(texts, tokens, self.heads, size // self.heads).transpose(1, 2)


class Encoder(nn.Module):
    """Embeddings, layers and the pooler of BERT."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor, *, layers: int | None = None
    ) -> torch.Tensor:
        """Hidden states (texts, tokens, hidden size) after the first `layers` layers; None means all."""
        hidden: torch.Tensor = self.embeddings(ids, segments)
        for layer in self.layers[:layers]:
            hidden = layer(hidden, mask)
        return hidden

    def fingerprint(self) -> str:
        """SHA-256 of sizes and parameters."""
        digest = hashlib.sha256(repr(self.config).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()
