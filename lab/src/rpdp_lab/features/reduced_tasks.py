"""CIFAR-10 and SNLI of figure 8, reduced to what two cores can train on; for study files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from rpdp.tasks.federate import federate
from rpdp.tasks.models.initialisation import initialised_from
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.partitions import Iid
from rpdp_lab.data.cifar10 import load_cifar10
from rpdp_lab.data.snli import load_snli
from rpdp_lab.features import sentence_pairs
from rpdp_lab.models.text import ENCODER_SAW_SNLI, encode_dataset, load_text_model

if TYPE_CHECKING:
    from rpdp.tasks.dataset import FederatedData

CIFAR_IMAGES = 20_000
SNLI_PAIRS = 6_000
SNLI_SENTENCE_PAIRS = 10_000
SNLI_TOKENS = 32
SNLI_TRAIN_SHARE = 0.8
"""More test pairs than the paper's 5 %: of so few pairs that would leave 300."""


def cifar10(seed: int) -> FederatedData:
    """20,000 training images in ten silos."""
    return federate(load_cifar10().first(CIFAR_IMAGES), Iid(10), seed=seed)


def small_network(seed: int) -> nn.Module:
    """Three convolutions with tanh and average pooling, 33,834 parameters: for curves, not for records."""
    with initialised_from(seed):
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(1024, 10),
        )


def snli(seed: int) -> FederatedData:
    """6,000 pairs as hidden states of the frozen encoder; the first call runs it."""
    states = encode_dataset(load_snli(limit=SNLI_PAIRS), load_text_model(), max_length=SNLI_TOKENS)
    return federate(
        states.with_features(states.features, ENCODER_SAW_SNLI), Iid(10), train_share=SNLI_TRAIN_SHARE, seed=seed
    )


def text_top(seed: int) -> nn.Module:
    """The last layer, pooler and head, 1,923,459 parameters."""
    return load_text_model().top(classes=3, seed=seed)


def snli_sentences(seed: int) -> FederatedData:
    """10,000 pairs as fixed features of their two sentences; the first call runs the encoder, for a minute or two."""
    pairs = load_snli(limit=SNLI_SENTENCE_PAIRS)
    features = sentence_pairs.pair_features([tuple(row) for row in pairs.features], max_length=SNLI_TOKENS)
    return federate(
        pairs.with_features(features, ENCODER_SAW_SNLI, sentence_pairs.NOTE),
        Iid(10),
        train_share=SNLI_TRAIN_SHARE,
        seed=seed,
    )


def sentence_head() -> nn.Module:
    """A linear model on those features, 3,462 parameters, that starts at zero."""
    return logistic_regression(sentence_pairs.FEATURES, 3)
