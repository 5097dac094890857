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
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

from rpdp import Records
from rpdp.training import TransformersModel

TRAIN, TEST, TOKENS = 400, 100, 32
SILOS = ("north", "south", "west")


def files() -> Path:
    """The directory of the data."""
    return Path(os.environ["RPDP_DATA"])


def data() -> dict[str, tuple[Records, list[str], Records]]:
    """Silo → (training records, their ids, test records)."""
    with gzip.open(files() / "snli" / "train_subset.jsonl.gz", "rt", encoding="utf8") as lines:
        pairs = [json.loads(line) for line in islice(lines, len(SILOS) * (TRAIN + TEST))]
    tokenizer = BertWordPieceTokenizer(str(files() / "models" / "all-MiniLM-L6-v2" / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(TOKENS)  # the same length for everybody: no batch is as long as its longest record
    tokenizer.enable_padding(length=TOKENS)
    found = tokenizer.encode_batch([(pair["premise"], pair["hypothesis"]) for pair in pairs])
    inputs = [torch.tensor([getattr(each, name) for each in found]) for name in ("ids", "attention_mask", "type_ids")]
    records = Records.of(inputs, torch.tensor([pair["label"] for pair in pairs]))
    silos = {}
    for place, name in enumerate(SILOS):
        start = place * (TRAIN + TEST)
        ids = [f"{name}-{number:04d}" for number in range(TRAIN)]
        silos[name] = (records.rows(start, start + TRAIN), ids, records.rows(start + TRAIN, start + TRAIN + TEST))
    return silos


def model() -> nn.Module:
    """The encoder as published, frozen; adapters of rank 8 in query and value, and a new head, are trained."""
    folder = files() / "models" / "all-MiniLM-L6-v2"
    settings = BertConfig.from_json_file(str(folder / "config.json"))
    settings.num_labels = 3
    bert = BertForSequenceClassification(settings)
    weights = load_file(str(folder / "model.fp16.safetensors"))
    bert.bert.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
    adapters = LoraConfig(r=8, target_modules=["query", "value"], modules_to_save=["classifier"], lora_dropout=0.1)
    adapted = get_peft_model(bert, adapters).train()  # dropout is on: every record has masks of its own
    return TransformersModel(adapted, ("input_ids", "attention_mask", "token_type_ids"))


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """One value per record."""
    return cross_entropy(outputs, targets, reduction="none")
