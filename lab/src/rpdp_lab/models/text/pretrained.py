"""A pretrained encoder with its tokenizer, from `config.json`, `vocab.txt` and a safetensors file.

The encoder at hand, all-MiniLM-L6-v2, was trained by its publisher on sentence pairs of SNLI and MultiNLI
among others. For claims about privacy on SNLI it is not a model that never saw the data; `ENCODER_SAW_SNLI`
is the note for reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rpdp.errors import InputError
from rpdp_lab.data.data_files import find_file
from rpdp_lab.models.text.encoder import Encoder, EncoderConfig
from rpdp_lab.models.text.text_head import TextHead
from rpdp_lab.models.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENCODER_SAW_SNLI = "the encoder all-MiniLM-L6-v2 was trained on SNLI by its publisher: not covered by the promise"
_MODEL = "models/all-MiniLM-L6-v2"
_OUR_NAMES = (  # published name of a BertModel's tensor → ours, applied in this order
    ("embeddings.word_embeddings.", "embeddings.words."),
    ("embeddings.position_embeddings.", "embeddings.positions."),
    ("embeddings.token_type_embeddings.", "embeddings.segments."),
    ("embeddings.LayerNorm.", "embeddings.norm."),
    ("encoder.layer.", "layers."),
    (".attention.self.", "."),
    (".attention.output.dense.", ".attention_output."),
    (".attention.output.LayerNorm.", ".attention_norm."),
    (".intermediate.dense.", ".expand."),
    (".output.dense.", ".contract."),
    (".output.LayerNorm.", ".output_norm."),
    ("pooler.dense.", "pooler."),
)


@dataclass(frozen=True)
class TextModel:
    """A frozen encoder and the tokenizer it was trained with."""

    encoder: Encoder
    tokenizer: Tokenizer

    def top(self, classes: int, *, seed: int = 0) -> TextHead:
        """A trainable top that starts from the pretrained last layer and pooler."""
        return TextHead.on_top_of(self.encoder, classes, seed=seed)


def load_text_model() -> TextModel:
    """The pretrained all-MiniLM-L6-v2, found like every data file; weights are cast to float32."""
    weights = find_file(f"{_MODEL}/model.fp16.safetensors", f"{_MODEL}/model.safetensors")
    return read_text_model(find_file(f"{_MODEL}/config.json"), find_file(f"{_MODEL}/vocab.txt"), weights)


def read_text_model(config: Path, vocabulary: Path, weights: Path) -> TextModel:
    """A BERT encoder from its published files."""
    from safetensors.torch import load_file

    encoder = encoder_from_tensors(EncoderConfig.read(config), load_file(weights))
    tokenizer = Tokenizer.read(vocabulary)
    if len(tokenizer.vocabulary) != encoder.config.vocabulary_size:
        raise InputError(
            f"{vocabulary} has {len(tokenizer.vocabulary)} pieces, {config} says {encoder.config.vocabulary_size}"
        )
    return TextModel(encoder, tokenizer)


def encoder_from_tensors(config: EncoderConfig, tensors: Mapping[str, torch.Tensor]) -> Encoder:
    """A frozen encoder in evaluation mode with the tensors of a `BertModel`; every tensor must fit."""
    renamed = {_our_name(name): tensor.to(torch.float32) for name, tensor in tensors.items()}
    with torch.device("meta"):
        encoder = Encoder(config)
    try:
        encoder.load_state_dict(renamed, assign=True)
    except RuntimeError as problem:
        raise InputError(f"the weights do not fit the configuration {config}: {problem}") from problem
    return encoder.requires_grad_(False).eval()


def _our_name(name: str) -> str:
    for published, ours in _OUR_NAMES:
        name = name.replace(published, ours)
    return name
