"""A text classifier of the BERT family in plain torch: tokenizer, encoder, trainable top, cached hidden states."""

from __future__ import annotations

from rpdp_lab.models.text.encoder import Encoder, EncoderConfig
from rpdp_lab.models.text.hidden_states import encode_dataset
from rpdp_lab.models.text.pretrained import ENCODER_SAW_SNLI, TextModel, load_text_model
from rpdp_lab.models.text.text_head import TextClassifier, TextHead
from rpdp_lab.models.text.tokenizer import TokenBatch, Tokenizer

__all__ = [
    "ENCODER_SAW_SNLI",
    "Encoder",
    "EncoderConfig",
    "TextClassifier",
    "TextHead",
    "TextModel",
    "TokenBatch",
    "Tokenizer",
    "encode_dataset",
    "load_text_model",
]
