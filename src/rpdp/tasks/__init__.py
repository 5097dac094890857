"""Example tasks with embedded data: records, their partition among silos, models and losses.

The data come with installed packages (extra `demo`), so a task needs neither files nor a network.
"""

from __future__ import annotations

from rpdp.tasks.dataset import Dataset, FederatedData, SiloData, concatenate
from rpdp.tasks.embedded import load_breast_cancer, load_digits, load_mnist_5k
from rpdp.tasks.federate import federate, split_rows
from rpdp.tasks.partitions import ClassesPerSilo, Dirichlet, Iid, Partition
from rpdp.tasks.registry import TASKS, Task, TaskSchedule, task
from rpdp.tasks.scaling import PublicRange, scale_by_ranges, standardise_by_silo

__all__ = [
    "TASKS",
    "ClassesPerSilo",
    "Dataset",
    "Dirichlet",
    "FederatedData",
    "Iid",
    "Partition",
    "PublicRange",
    "SiloData",
    "Task",
    "TaskSchedule",
    "concatenate",
    "federate",
    "load_breast_cancer",
    "load_digits",
    "load_mnist_5k",
    "scale_by_ranges",
    "split_rows",
    "standardise_by_silo",
    "task",
]
