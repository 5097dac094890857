"""A text classifier of which only the last encoder layer, the pooler and the head are trained.

`TextHead` is the trainable top. It takes the hidden states below the last layer, which do not change in
training and are computed once (`hidden_states.py`). `TextClassifier` is the whole, from token ids, for use after
training. With BERT-base the top has 7,680,771 parameters for three classes, the number in the paper's table;
with the six-layer encoder of 384 units used here it has 1,923,459.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rpdp.errors import InputError
from rpdp.tasks.models.initialisation import initialised_from

if TYPE_CHECKING:
    from rpdp_lab.models.text.encoder import Encoder, EncoderLayer

_HEAD_DEVIATION = 0.02  # BERT's initializer_range


class TextHead(nn.Module):
    """The last encoder layer, the pooler (a linear layer and tanh on the first token) and a linear head.

    Args:
        layer: The encoder's last layer.
        pooler: The encoder's pooler.
        classes: Number of logits.
        seed: Of the head's initial weights.
    """

    def __init__(self, layer: EncoderLayer, pooler: nn.Linear, classes: int, *, seed: int = 0) -> None:
        super().__init__()
        if classes < 2:
            raise InputError(f"classes={classes} must be at least 2")
        self.layer = layer
        self.pooler = pooler
        with initialised_from(seed):
            self.head = nn.Linear(pooler.out_features, classes)
            nn.init.normal_(self.head.weight, std=_HEAD_DEVIATION)
            nn.init.zeros_(self.head.bias)

    @classmethod
    def on_top_of(cls, encoder: Encoder, classes: int, *, seed: int = 0) -> TextHead:
        """A top that starts from copies of the encoder's last layer and pooler."""
        layer = cast("EncoderLayer", copy.deepcopy(encoder.layers[-1]))
        return cls(layer, copy.deepcopy(encoder.pooler), classes, seed=seed).requires_grad_()

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states (texts, tokens, hidden size) to logits (texts, classes).

        Without `mask` (texts, tokens), a token whose state is zero throughout is padding, which is how cached
        states mark it; the state of a true token, normalised with a bias, is never zero.
        """
        if mask is None:
            mask = hidden.ne(0).any(dim=-1)
        hidden = hidden.to(self.head.weight.dtype)  # cached states come in half precision
        last = self.layer(hidden, mask, first_only=True)
        logits: torch.Tensor = self.head(torch.tanh(self.pooler(last[:, 0])))
        return logits


class TextClassifier(nn.Module):
    """Token ids to logits: the frozen part of an encoder below a trainable top.

    Args:
        encoder: Gives embeddings and all layers but the last; its parameters are frozen.
        top: The trainable top.
    """

    def __init__(self, encoder: Encoder, top: TextHead) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.top = top

    def forward(self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Token ids, segment numbers and mask (texts, tokens) to logits (texts, classes)."""
        with torch.no_grad():
            hidden = self.encoder(ids, segments, mask, layers=self.encoder.config.layers - 1)
        logits: torch.Tensor = self.top(hidden, mask)
        return logits
