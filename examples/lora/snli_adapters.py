"""Sentence pairs (SNLI) in three silos, and adapters on a small BERT: data, model and loss of `study.toml`.

Files come from the directory that RPDP_DATA names: `snli/` and `models/all-MiniLM-L6-v2/`. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import json
import os
from itertools import islice
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from tokenizers import BertWordPieceTokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from transformers import BertConfig, BertModel

from rpdp import Records
from rpdp.training import TransformersModel

TRAIN, TEST, TOKENS = 1600, 300, 20
FIRST = 5000  # settings were chosen on the pairs before
SILOS = ("north", "south", "west")
SCALE = 20.0  # of the logits: a rate that suits the head is then small enough for the adapters
LAYERS = [4, 5]  # adapters in the last two of six layers: nothing has to be propagated further back


def files() -> Path:
    """The directory of the data."""
    return Path(os.environ["RPDP_DATA"])


def data() -> dict[str, tuple[Records, list[str], Records]]:
    """Silo → (training records, their ids, test records)."""
    with gzip.open(files() / "snli" / "train_subset.jsonl.gz", "rt", encoding="utf8") as lines:
        pairs = [json.loads(line) for line in islice(lines, FIRST, FIRST + len(SILOS) * (TRAIN + TEST))]
    tokenizer = BertWordPieceTokenizer(str(files() / "models" / "all-MiniLM-L6-v2" / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(TOKENS)  # the same length for everybody: no batch is as long as its longest record
    tokenizer.enable_padding(length=TOKENS)
    inputs = []
    for sentence in ("premise", "hypothesis"):
        found = tokenizer.encode_batch([pair[sentence] for pair in pairs])
        inputs += [torch.tensor([getattr(each, name) for each in found]) for name in ("ids", "attention_mask")]
    records = Records.of(inputs, torch.tensor([pair["label"] for pair in pairs]))
    silos = {}
    for place, name in enumerate(SILOS):
        start = place * (TRAIN + TEST)
        ids = [f"{name}-{number:04d}" for number in range(TRAIN)]
        silos[name] = (records.rows(start, start + TRAIN), ids, records.rows(start + TRAIN, start + TRAIN + TEST))
    return silos


class Pairs(nn.Module):
    """An embedding of each sentence, compared coordinate by coordinate, and a linear head that starts at zero."""

    def __init__(self, encoder: nn.Module, size: int) -> None:
        super().__init__()
        self.encoder = TransformersModel(encoder, ("input_ids", "attention_mask"), "last_hidden_state")
        self.head = nn.Linear(3 * size, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, premise: Tensor, premise_mask: Tensor, hypothesis: Tensor, hypothesis_mask: Tensor) -> Tensor:
        """Logits of entailment, neutral and contradiction."""
        one, other = self.embedded(premise, premise_mask), self.embedded(hypothesis, hypothesis_mask)
        features = torch.cat([other, other - one, 5.0 * one * other], dim=1)
        logits: Tensor = SCALE * self.head(normalize(features, dim=1))
        return logits

    def embedded(self, words: Tensor, mask: Tensor) -> Tensor:
        """The mean of the last states, of length 1, as the encoder's publisher uses it."""
        states = self.encoder(words, mask)
        return normalize((states * mask.unsqueeze(2)).mean(1), dim=1)


def model() -> nn.Module:
    """The encoder as published, frozen; adapters of rank 4 in query and value, and the head, are trained."""
    folder = files() / "models" / "all-MiniLM-L6-v2"
    settings = BertConfig.from_json_file(str(folder / "config.json"))
    bert = BertModel(settings, add_pooling_layer=False)
    weights = load_file(str(folder / "model.fp16.safetensors"))
    kept = {name: value.float() for name, value in weights.items() if not name.startswith("pooler.")}
    bert.load_state_dict(kept, strict=True)
    adapters = LoraConfig(
        r=4,
        lora_alpha=2,
        target_modules=["query", "value"],
        layers_to_transform=LAYERS,
        layers_pattern="layer",
        lora_dropout=0.1,
    )
    return Pairs(get_peft_model(bert.eval(), adapters), settings.hidden_size)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """One value per record."""
    return cross_entropy(outputs, targets, reduction="none")
