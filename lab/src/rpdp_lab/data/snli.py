"""SNLI: pairs of sentences, does the first entail the second (Bowman, Angeli, Potts, Manning, 2015).

`train` is a subset, 96,618 of the 549,367 labelled pairs, and no uniform sample of them: results are not
comparable with full-SNLI results. The text encoder at hand, all-MiniLM-L6-v2, was trained by its publisher on
SNLI among others, so it is not a model that never saw these records. Notes say both.
"""

from __future__ import annotations

import gzip
import json
from typing import Literal

import numpy as np

from rpdp.errors import InputError
from rpdp.tasks.dataset import Dataset, numbered_ids
from rpdp_lab.data.data_files import find_file

SNLI_CLASSES = ("entailment", "neutral", "contradiction")
_FILES = {"train": "snli/train_subset.jsonl.gz", "dev": "snli/dev.jsonl.gz", "test": "snli/test.jsonl.gz"}
_PART_OF_TRAINING = "SNLI: a subset of the training pairs (96,618 of 549,367), not a uniform sample"


def load_snli(split: Literal["train", "dev", "test"] = "train", *, limit: int | None = None) -> Dataset:
    """Pairs of one split; features are an object array (records, 2) of premise and hypothesis.

    Args:
        split: "train" (the subset), "dev" or "test"; ids are "snli-train-000000" …
        limit: Only the first pairs; a prefix of the training file is a random sample of that file.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit} must be at least 1")
    with gzip.open(find_file(_FILES[split]), "rt", encoding="utf8") as lines:
        pairs = [json.loads(line) for line, _ in zip(lines, range(limit or 10**9), strict=False)]
    texts = np.empty((len(pairs), 2), dtype=object)
    texts[:] = [(pair["premise"], pair["hypothesis"]) for pair in pairs]
    return Dataset(
        name="snli",
        features=texts,
        labels=np.array([pair["label"] for pair in pairs], dtype=np.int64),
        record_ids=numbered_ids(f"snli-{split}", len(pairs), digits=6),
        classes=len(SNLI_CLASSES),
        notes=(_PART_OF_TRAINING,) if split == "train" else (),
    )
