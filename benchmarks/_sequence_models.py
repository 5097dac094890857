"""Models over sequences for `step.py`: recurrent layers, a transformer from scratch, adapters on a BERT."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.training import TransformersModel

WORDS, LENGTH, WIDTH = 200, 64, 128


class Sequences(nn.Module):
    """A recurrent layer and a linear one on its last output."""

    def __init__(self, layer: nn.Module, hidden: int) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(hidden, 10)

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(values)[0][:, -1])
        return logits


class Block(nn.Module):
    """Attention by torch's own function, and two linear layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, values: Tensor) -> Tensor:
        heads = self.project(self.first(values)).reshape(*values.shape[:2], 4, -1).transpose(1, 2)
        query, key, value = heads.chunk(3, -1)
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout)
        values = values + F.dropout(self.mix(mixed.transpose(1, 2).flatten(2)), self.dropout)
        hidden: Tensor = self.narrow(F.gelu(self.widen(self.second(values))))
        return values + F.dropout(hidden, self.dropout)


class SmallTransformer(nn.Module):
    """Two blocks over 64 words."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(dropout), Block(dropout))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, words: Tensor) -> Tensor:
        values = self.words(words) + self.places(torch.arange(words.shape[1]).expand_as(words))
        logits: Tensor = self.head(self.blocks(values).mean(1))
        return logits


def bert_with_adapters() -> nn.Module:
    """A BERT of six layers and width 384 with random weights, of which adapters of rank 8 and the head are trained."""
    peft: Any = import_module("peft")
    transformers: Any = import_module("transformers")
    settings = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=3,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    chosen = peft.LoraConfig(r=8, target_modules=["query", "value"], modules_to_save=["classifier"])
    return TransformersModel(peft.get_peft_model(transformers.BertForSequenceClassification(settings), chosen))
