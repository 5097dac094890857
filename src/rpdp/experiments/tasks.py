"""The registry of tasks: a name stands for data, model, loss and the paper's schedule.

Importing it loads no torch; building a model does. Schedules of the four tasks of the paper are those of its
table of data sets and its hyperparameters (δ = 1e-3 for Heart-Disease, 1e-4 for the others). The embedded
tasks need no file and are small enough for examples and tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.experiments.data import (
    ClassesPerSilo,
    Dataset,
    FederatedData,
    Iid,
    Partition,
    federate,
    load_breast_cancer,
    load_cifar10,
    load_digits,
    load_heart_disease,
    load_mnist,
    load_mnist_5k,
    load_snli,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from rpdp.experiments.models.losses import Loss

SNLI_RECORDS = 20_000  # pairs of the task; all hidden states of 96,618 pairs would take 3.6 GB of memory
SNLI_TOKENS = 48  # 98.6 % of the pairs are no longer; the longest of them has 104 tokens
SNLI_TRAIN_SHARE = 0.95  # the paper's table: 95 % / 5 %


@dataclass(frozen=True)
class TaskSchedule:
    """The public schedule a task is run with by default."""

    rounds: int
    local_steps: int
    participation: float
    delta: float


@dataclass(frozen=True)
class Task:
    """Data, model, loss and default schedule of an experiment.

    Attributes:
        name: Its name in the registry.
        summary: One line for lists.
        schedule: Rounds T, local steps τ, participation λ, δ.
        embedded: Whether the data come with installed packages and need no file.
        partitions: Named ways to divide the data among silos; the first is the default. Empty when the data
            come in silos.
    """

    name: str
    summary: str
    schedule: TaskSchedule
    embedded: bool
    partitions: dict[str, Partition]
    _load: Callable[[Partition | None, int], FederatedData] = field(repr=False)
    _model: Callable[[int], nn.Module] = field(repr=False)
    _binary: bool = field(repr=False)

    def load(self, partition: str | Partition | None = None, *, seed: int = 0) -> FederatedData:
        """The data in silos; `partition` is one of `partitions` or your own; `seed` fixes both splits."""
        return self._load(self._partition(partition), seed)

    def model(self, *, seed: int = 0) -> nn.Module:
        """A new model; `seed` fixes its initial parameters."""
        return self._model(seed)

    @property
    def loss(self) -> Loss:
        """The loss that fits the model, one value per record."""
        from rpdp.experiments.models.losses import binary_loss, cross_entropy

        return binary_loss if self._binary else cross_entropy

    def _partition(self, partition: str | Partition | None) -> Partition | None:
        if not self.partitions:
            if partition is not None:
                raise InputError(f"partition={partition!r}: the data of task {self.name} come in silos already")
            return None
        if partition is None:
            return next(iter(self.partitions.values()))
        if not isinstance(partition, str):
            return partition
        if partition not in self.partitions:
            raise InputError(
                f"partition={partition!r} must be one of {', '.join(self.partitions)} for task {self.name}"
            )
        return self.partitions[partition]


def task(name: str) -> Task:
    """The task of that name.

    >>> task("heart_disease").schedule.rounds
    15
    """
    if name not in TASKS:
        raise InputError(f"task {name!r} is not known; there are {', '.join(TASKS)}")
    return TASKS[name]


def _heart_disease(partition: Partition | None, seed: int) -> FederatedData:
    return load_heart_disease(seed=seed)


def _divided(load: Callable[[], Dataset]) -> Callable[[Partition | None, int], FederatedData]:
    def loaded(partition: Partition | None, seed: int) -> FederatedData:
        return federate(load(), partition or Iid(), seed=seed)

    return loaded


def _snli(partition: Partition | None, seed: int) -> FederatedData:
    """Hidden states of the frozen encoder; the first call runs it, in a minute or two on two cores."""
    from dataclasses import replace

    from rpdp.experiments.models.text import ENCODER_SAW_SNLI, encode_dataset, load_text_model

    states = encode_dataset(load_snli(limit=SNLI_RECORDS), load_text_model(), max_length=SNLI_TOKENS)
    noted = replace(states, notes=(*states.notes, ENCODER_SAW_SNLI))
    return federate(noted, partition or Iid(), train_share=SNLI_TRAIN_SHARE, seed=seed)


def _logistic(features: int, classes: int = 2) -> Callable[[int], nn.Module]:
    def build(seed: int) -> nn.Module:
        from rpdp.experiments.models.linear import logistic_regression

        return logistic_regression(features, classes)

    return build


def _cnn(seed: int) -> nn.Module:
    from rpdp.experiments.models.convolutional import paper_cnn

    return paper_cnn(seed=seed)


def _resnet(seed: int) -> nn.Module:
    from rpdp.experiments.models.resnet import resnet18_groupnorm

    return resnet18_groupnorm(seed=seed)


def _text_top(seed: int) -> nn.Module:
    from rpdp.experiments.models.text import load_text_model

    return load_text_model().top(classes=3, seed=seed)


_TEN_SILOS: dict[str, Partition] = {"iid": Iid(10), "five_classes": ClassesPerSilo(10, 5)}
_FOUR_SILOS: dict[str, Partition] = {"iid": Iid(4), "five_classes": ClassesPerSilo(4, 5)}

TASKS: dict[str, Task] = {
    entry.name: entry
    for entry in (
        Task(
            "heart_disease",
            "740 patients of four hospitals, logistic regression with 14 parameters",
            TaskSchedule(rounds=15, local_steps=10, participation=1.0, delta=1e-3),
            embedded=False,
            partitions={},
            _load=_heart_disease,
            _model=_logistic(13),
            _binary=True,
        ),
        Task(
            "mnist",
            "60,000 images of digits in ten silos, two-layer CNN with 26,010 parameters",
            TaskSchedule(rounds=15, local_steps=50, participation=0.5, delta=1e-4),
            embedded=False,
            partitions=_TEN_SILOS,
            _load=_divided(load_mnist),
            _model=_cnn,
            _binary=False,
        ),
        Task(
            "cifar10",
            "20,000 colour images in ten silos, ResNet-18 with group normalisation, 11,181,642 parameters",
            TaskSchedule(rounds=30, local_steps=50, participation=0.5, delta=1e-4),
            embedded=False,
            partitions=_TEN_SILOS,
            _load=_divided(load_cifar10),
            _model=_resnet,
            _binary=False,
        ),
        Task(
            "snli",
            "20,000 pairs of sentences in ten silos, last layer of a BERT encoder with 1,923,459 parameters",
            TaskSchedule(rounds=15, local_steps=50, participation=0.5, delta=1e-4),
            embedded=False,
            partitions={"iid": Iid(10)},
            _load=_snli,
            _model=_text_top,
            _binary=False,
        ),
        Task(
            "breast_cancer",
            "569 records in four silos, logistic regression with 31 parameters",
            TaskSchedule(rounds=15, local_steps=10, participation=1.0, delta=1e-3),
            embedded=True,
            partitions={"iid": Iid(4)},
            _load=_divided(load_breast_cancer),
            _model=_logistic(30),
            _binary=True,
        ),
        Task(
            "digits",
            "1,797 digits of 8×8 pixels in four silos, logistic regression with 650 parameters",
            TaskSchedule(rounds=15, local_steps=10, participation=1.0, delta=1e-3),
            embedded=True,
            partitions=_FOUR_SILOS,
            _load=_divided(load_digits),
            _model=_logistic(64, 10),
            _binary=False,
        ),
        Task(
            "mnist_5k",
            "5,000 images of MNIST in ten silos, two-layer CNN with 26,010 parameters",
            TaskSchedule(rounds=15, local_steps=20, participation=0.5, delta=1e-4),
            embedded=True,
            partitions=_TEN_SILOS,
            _load=_divided(load_mnist_5k),
            _model=_cnn,
            _binary=False,
        ),
    )
}
