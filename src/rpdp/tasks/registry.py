"""The registry of example tasks. Each task combines data, model, loss and a schedule under one name.

Importing this module does not load torch; building a model does. Tasks of other packages are `Task` objects too: a
study file names the function that makes one, as "package.module:function".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.tasks.embedded import load_breast_cancer, load_digits, load_mnist_5k
from rpdp.tasks.federate import federate
from rpdp.tasks.partitions import ClassesPerSilo, Iid, Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from rpdp.tasks.dataset import Dataset, FederatedData
    from rpdp.tasks.models.losses import Loss


@dataclass(frozen=True)
class TaskSchedule:
    """The default public schedule of a task."""

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
        partitions: Named ways to divide the data among silos; the first is the default. Empty if the data already come
            in silos.
        load_silos: Loads the data in silos, given a partition and a seed.
        make_model: Makes a new model from a seed.
        is_binary: Whether the model has a single logit instead of one per class.
    """

    name: str
    summary: str
    schedule: TaskSchedule
    partitions: dict[str, Partition]
    load_silos: Callable[[Partition | None, int], FederatedData] = field(repr=False)
    make_model: Callable[[int], nn.Module] = field(repr=False)
    is_binary: bool = field(repr=False)

    def load(self, partition: str | Partition | None = None, *, seed: int = 0) -> FederatedData:
        """The data in silos. `partition` is a name in `partitions`, or your own; `seed` fixes all splits."""
        return self.load_silos(self._partition(partition), seed)

    def model(self, *, seed: int = 0) -> nn.Module:
        """A new model; `seed` fixes its initial parameters."""
        return self.make_model(seed)

    @property
    def loss(self) -> Loss:
        """The loss for this model, with one value per record."""
        from rpdp.tasks.models.losses import binary_loss, cross_entropy

        return binary_loss if self.is_binary else cross_entropy

    def _partition(self, partition: str | Partition | None) -> Partition | None:
        if not self.partitions:
            if partition is not None:
                raise InputError(
                    f"partition={partition!r}: the data of task {self.name} already come in silos; leave it out"
                )
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
    """The task with this name.

    >>> task("breast_cancer").schedule.rounds
    15
    """
    if name not in TASKS:
        raise InputError(f"task {name!r} is unknown; choose one of {', '.join(TASKS)}")
    return TASKS[name]


def divided(load: Callable[[], Dataset]) -> Callable[[Partition | None, int], FederatedData]:
    """A `load_silos` function for a task whose data set is divided by a partition."""

    def load_silos(partition: Partition | None, seed: int) -> FederatedData:
        return federate(load(), partition or Iid(), seed=seed)

    return load_silos


def logistic(features: int, classes: int = 2) -> Callable[[int], nn.Module]:
    """A `make_model` function for a logistic regression."""

    def build(seed: int) -> nn.Module:
        from rpdp.tasks.models.linear import logistic_regression

        return logistic_regression(features, classes)

    return build


def cnn(seed: int) -> nn.Module:
    """The `make_model` function for the paper's MNIST network."""
    from rpdp.tasks.models.convolutional import paper_cnn

    return paper_cnn(seed=seed)


TEN_SILOS: dict[str, Partition] = {"iid": Iid(10), "five_classes": ClassesPerSilo(10, 5)}
_FOUR_SILOS: dict[str, Partition] = {"iid": Iid(4), "five_classes": ClassesPerSilo(4, 5)}

TASKS: dict[str, Task] = {
    entry.name: entry
    for entry in (
        Task(
            "breast_cancer",
            "569 records in four silos, logistic regression with 31 parameters",
            TaskSchedule(rounds=15, local_steps=10, participation=1.0, delta=1e-3),
            partitions={"iid": Iid(4)},
            load_silos=divided(load_breast_cancer),
            make_model=logistic(30),
            is_binary=True,
        ),
        Task(
            "digits",
            "1,797 digits of 8×8 pixels in four silos, logistic regression with 650 parameters",
            TaskSchedule(rounds=15, local_steps=10, participation=1.0, delta=1e-3),
            partitions=_FOUR_SILOS,
            load_silos=divided(load_digits),
            make_model=logistic(64, 10),
            is_binary=False,
        ),
        Task(
            "mnist_5k",
            "5,000 images of MNIST in ten silos, two-layer CNN with 26,010 parameters",
            TaskSchedule(rounds=15, local_steps=20, participation=0.5, delta=1e-4),
            partitions=TEN_SILOS,
            load_silos=divided(load_mnist_5k),
            make_model=cnn,
            is_binary=False,
        ),
    )
}
