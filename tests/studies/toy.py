"""A run so small that it takes a moment: own data and model in a module beside the study file."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

_NUMBERS = itertools.count()

MODULE = """
import torch
from torch import nn
from torch.nn import functional

import rpdp

from rpdp.training import Records


def _silo(name, seed, count=40):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count + 20, 3, generator=generator)
    labels = (features[:, 0] > 0).long()
    ids = [f"{name}-{number}" for number in range(count)]
    return Records.of(features[:count], labels[:count]), ids, Records.of(features[count:], labels[count:])


def data(seed=0):
    return {name: _silo(name, 10 * seed + place) for place, name in enumerate("abc")}


def two():
    return {name: held for name, held in data().items() if name != "c"}


def with_test_ids():
    return {
        name: (train, ids, Records(test.inputs, test.targets, [f"{name}-{40 + row}" for row in range(len(test))]))
        for name, (train, ids, test) in two().items()
    }


def with_nan():
    silos = data()
    silos["b"][0].inputs[0][3, 1] = float("nan")
    silos["b"][0].inputs[0][4, 1] = float("inf")
    return silos


def first_label_unknown():
    silos = two()
    silos["a"][0].targets[0] = 7
    return silos


def one_empty():
    return {**data(), "b": _silo("b", 1, 0)}


def one_single():
    return {**data(), "b": _silo("b", 1, 1)}


def repeated_ids():
    silos = data()
    silos["b"][1][1] = "b-0"
    return silos


def constant():
    silos = data()
    for train, _, _ in silos.values():
        train.inputs[0][:, 2] = 1.0
        train.targets[:] = 1
    return silos


def _with_targets(make):
    return {
        name: (Records(train.inputs, make(train.inputs[0])), ids, Records(test.inputs, make(test.inputs[0])))
        for name, (train, ids, test) in data().items()
    }


def numbers():
    return _with_targets(lambda features: features[:, 0] + 0.25)


def two_labels():
    return _with_targets(lambda features: (features[:, :2] > 0).long())


def imbalanced():
    return _with_targets(lambda features: (features[:, 0] > 1.5).long())


def without_tests():
    return {name: (train, ids, test.rows(0, 0)) for name, (train, ids, test) in data().items()}


def list_instead():
    return [1, 2]


def two_instead():
    return {"a": (1, 2)}


def odd_name():
    return {"../a": _silo("a", 1)}


def too_few_ids():
    train, ids, test = _silo("a", 1)
    return {"a": (train, ids[1:], test)}


def failing():
    raise RuntimeError("the disk is on fire")


def model():
    return nn.Linear(3, 1)


def deep():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def batchnorm():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def dropout():
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))


class Noise(nn.Module):
    def forward(self, inputs):
        return inputs + torch.rand_like(inputs)


def noisy():
    return nn.Sequential(nn.Linear(3, 4), Noise(), nn.Linear(4, 1))


class Hard(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, inputs):
        return self.layer(inputs).argmax(1, keepdim=True).float()


class Rounded(Hard):
    def forward(self, inputs):
        return self.layer(inputs)[:, :1].round()


class Unreached(Hard):
    def forward(self, inputs):
        return self.layer(inputs)[:, :1] * self.weight

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.spare = nn.Parameter(torch.ones(1))


def frozen():
    return nn.Linear(3, 1).requires_grad_(False)


def narrow():
    return nn.Linear(2, 1)


def half():
    return nn.Linear(3, 1).half()


def sigmoid():
    return nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())


def two_outputs():
    return nn.Linear(3, 2)


def text():
    return "a model"


def loss(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction="none")


def by_class(outputs, targets):
    return functional.cross_entropy(torch.cat([-outputs, outputs], 1), targets, reduction="none")


def on_probabilities(outputs, targets):
    return functional.binary_cross_entropy(torch.sigmoid(outputs[:, 0]), targets.float(), reduction="none")


def squared(outputs, targets):
    return (outputs[:, 0] - targets) ** 2


def label_loss(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, targets.float(), reduction="none").mean(1)


def after_sigmoid(outputs, targets):
    return (outputs[:, 0] - targets.float()) ** 2


def bias(outputs, targets):
    return float(outputs.mean())


def broken(outputs, targets):
    raise ValueError("no such luck")


cost = rpdp.Metric(
    "cost", "the squared error", lambda out, y: float(((out[:, 0] - y) ** 2).mean()), larger_is_better=False
)


def mean_loss(outputs, targets):
    return loss(outputs, targets).mean()


def number_loss(outputs, targets):
    return 1.0


number = 3
"""

RUN = """
[task]
data = "{module}:data"
model = "{module}:model"
loss = "{module}:loss"

[schedule]
rounds = 3
local_steps = 2
participation = 1.0

[privacy]
delta = 1e-3
noise_multiplier = 2.0
clip_norm = 1.0
accountant = "rdp"

[budgets]
distribution = "ThreeLevels"
overrides = {{ levels = [0.3, 1.0, 5.0] }}
records_per_silo = 40

[training]
learning_rate = 0.5

[run]
seeds = [1]
workers = 1
"""

Change = tuple[str, str | None]


def write_module(directory: Path) -> str:
    """The module, under a name that no other test has imported."""
    name = f"toy_{next(_NUMBERS)}_{directory.name.replace('-', '_')}"
    (directory / f"{name}.py").write_text(MODULE)
    return name


def write_run(directory: Path, *changes: Change, name: str = "run.toml") -> Path:
    """The toy's study file with lines changed: ("privacy.delta", "2") sets, ("privacy.delta", None) removes.

    A task's functions are named alone: ("task.model", "batchnorm").
    """
    module = write_module(directory)
    sections = _sections(RUN.format(module=module))
    for key, value in changes:
        section, _, setting = key.rpartition(".")
        if not setting or not section:
            section, setting = key, ""
        if section == "task" and value is not None and value.isidentifier():
            value = f'"{module}:{value}"'
        _change(sections, section, setting, value)
    path = directory / name
    path.write_text("".join(f"[{section}]\n" + "".join(lines.values()) for section, lines in sections.items()))
    return path


def _sections(text: str) -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.strip().splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line:
            current[line.partition("=")[0].strip()] = line + "\n"
    return sections


def _change(sections: dict[str, dict[str, str]], section: str, setting: str, value: str | None) -> None:
    if not setting:
        if value is None:
            sections.pop(section)
        else:
            sections[section] = {}
        return
    lines = sections.setdefault(section, {})
    lines.pop(setting, None)
    if value is not None:
        lines[setting] = f"{setting} = {value}\n"


def parsed(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())
