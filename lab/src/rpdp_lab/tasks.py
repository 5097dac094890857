"""The paper's four tasks, for a study file: `[task] name = "rpdp_lab.tasks:mnist"`.

Schedules are those of the paper's table of data sets and its hyperparameters (δ = 1e-3 for Heart-Disease, 1e-4 for
the others). Data files are found through `RPDP_DATA`. Importing this loads no torch; building a model does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.tasks import TASKS, Iid, Task, TaskSchedule, federate
from rpdp.tasks.registry import TEN_SILOS, cnn, divided, logistic
from rpdp_lab.data import load_cifar10, load_heart_disease, load_mnist, load_snli

if TYPE_CHECKING:
    from torch import nn

    from rpdp.tasks import FederatedData, Partition

SNLI_RECORDS = 20_000
"""Pairs of the task; all hidden states of 96,618 pairs would take 3.6 GB of memory."""

SNLI_TOKENS = 48
"""98.6 % of the pairs are no longer; the longest of them has 104 tokens."""

SNLI_TRAIN_SHARE = 0.95
"""The paper's table: 95 % / 5 %."""

PAPER = ("heart_disease", "mnist", "cifar10", "snli")
"""The paper's tasks."""


def task(name: str) -> Task:
    """A task of the paper, or an embedded one, by its name."""
    if name in TASKS:
        return TASKS[name]
    made = {"heart_disease": heart_disease, "mnist": mnist, "cifar10": cifar10, "snli": snli}.get(name)
    if made is None:
        raise InputError(f"task {name!r} is not known; there are {', '.join([*TASKS, *PAPER])}")
    return made()


def heart_disease() -> Task:
    """Heart-Disease: four hospitals, logistic regression."""
    return Task(
        "heart_disease",
        "740 patients of four hospitals, logistic regression with 14 parameters",
        TaskSchedule(rounds=15, local_steps=10, participation=1.0, delta=1e-3),
        partitions={},
        load_silos=_four_hospitals,
        make_model=logistic(13),
        is_binary=True,
    )


def mnist() -> Task:
    """MNIST in ten silos, the paper's CNN."""
    return Task(
        "mnist",
        "60,000 images of digits in ten silos, two-layer CNN with 26,010 parameters",
        TaskSchedule(rounds=15, local_steps=50, participation=0.5, delta=1e-4),
        partitions=TEN_SILOS,
        load_silos=divided(load_mnist),
        make_model=cnn,
        is_binary=False,
    )


def cifar10() -> Task:
    """CIFAR-10 in ten silos, ResNet-18."""
    return Task(
        "cifar10",
        "20,000 colour images in ten silos, ResNet-18 with group normalisation, 11,181,642 parameters",
        TaskSchedule(rounds=30, local_steps=50, participation=0.5, delta=1e-4),
        partitions=TEN_SILOS,
        load_silos=divided(load_cifar10),
        make_model=_resnet,
        is_binary=False,
    )


def snli() -> Task:
    """SNLI in ten silos, the last layer of a text encoder."""
    return Task(
        "snli",
        "20,000 pairs of sentences in ten silos, last layer of a BERT encoder with 1,923,459 parameters",
        TaskSchedule(rounds=15, local_steps=50, participation=0.5, delta=1e-4),
        partitions={"iid": Iid(10)},
        load_silos=_encoded_pairs,
        make_model=_text_top,
        is_binary=False,
    )


def _four_hospitals(partition: Partition | None, seed: int) -> FederatedData:
    return load_heart_disease(seed=seed)


def _encoded_pairs(partition: Partition | None, seed: int) -> FederatedData:
    """Hidden states of the frozen encoder; the first call runs it, in a minute or two on two cores."""
    from rpdp_lab.models.text import ENCODER_SAW_SNLI, encode_dataset, load_text_model

    states = encode_dataset(load_snli(limit=SNLI_RECORDS), load_text_model(), max_length=SNLI_TOKENS)
    noted = replace(states, notes=(*states.notes, ENCODER_SAW_SNLI))
    return federate(noted, partition or Iid(), train_share=SNLI_TRAIN_SHARE, seed=seed)


def _resnet(seed: int) -> nn.Module:
    from rpdp_lab.models.resnet import resnet18_groupnorm

    return resnet18_groupnorm(seed=seed)


def _text_top(seed: int) -> nn.Module:
    from rpdp_lab.models.text import load_text_model

    return load_text_model().top(classes=3, seed=seed)
