"""Hostile models, losses and records for the non-interference suite: each misbehaves on one record and on no other.

A silo file names functions of a module that these functions fill (`tests.deployment.agent.interference_host`). The
target record carries an exact number that no other record has, so only code that looks at values can find it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rpdp.errors import InputError
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import Records

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 4
OTHERS = 400
MARK = 37.25
"""The first feature of the target; those of the others are below 5."""

SLEEP = 0.3
"""Seconds: two such steps are longer than a round may take. The host sets it for its own release time."""

STRANGE_LABEL = 3


# Records

TARGETS: dict[str, tuple[float, ...]] = {
    "marked": (MARK, -MARK, MARK, MARK),
    "zero": (0.0, 0.0, 0.0, 0.0),
    "denormal": (1e-42, -1e-42, 1e-42, 1e-44),
    "huge": (1e30, -1e30, 1e30, 1e30),
    "largest": (3.4e38, 3.4e38, -3.4e38, 3.4e38),
    "infinite": (float("inf"), 1.0, float("-inf"), 1.0),
    "NaN": (float("nan"), 1.0, 1.0, 1.0),
}


def make_records(target: str | None, *, first: bool = False, label: int = 0) -> tuple[Records, list[str]]:
    """The silo's records and their ids, with or without a target, which comes first or last."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(OTHERS, FEATURES, generator=generator).clamp(-4.5, 4.5)
    targets = (inputs[:, 0] > inputs[:, 1]).long()
    ids = [f"r{row}" for row in range(OTHERS)]
    if target is not None:
        one, its = torch.tensor([TARGETS[target]]), torch.tensor([label])
        inputs = torch.cat([one, inputs] if first else [inputs, one])
        targets = torch.cat([its, targets] if first else [targets, its])
        ids = ["target", *ids] if first else [*ids, "target"]
    return Records.of(inputs, targets), ids


# What happens where the target is


def _raise(_: Tensor) -> Tensor:
    raise ValueError("this record cannot be used")


def _raise_ours(_: Tensor) -> Tensor:
    raise InputError("this record cannot be used")


def _no_memory(_: Tensor) -> Tensor:
    raise MemoryError


def _allocator(values: Tensor) -> Tensor:
    return values + torch.empty(1 << 50)[0]


def _recurse(values: Tensor) -> Tensor:
    return _recurse(values)


def _exit(_: Tensor) -> Tensor:
    sys.exit(1)


def _interrupt(_: Tensor) -> Tensor:
    raise KeyboardInterrupt


def _die(_: Tensor) -> Tensor:
    os._exit(1)


def _sleep(values: Tensor) -> Tensor:
    time.sleep(SLEEP)
    return values


def _sleep_long(values: Tensor) -> Tensor:
    time.sleep(6 * SLEEP)
    return values


def _wait_for_ever(values: Tensor) -> Tensor:
    while True:
        time.sleep(0.01)


def _spin_for_ever(values: Tensor) -> Tensor:
    while True:
        pass


def _spin(values: Tensor) -> Tensor:
    until = time.monotonic() + SLEEP
    while time.monotonic() < until:
        pass
    return values


def _allocate(values: Tensor) -> Tensor:
    return values + 0.0 * torch.ones(75_000_000).sum()  # 300 MB that are written to


def _twice(values: Tensor) -> Tensor:
    return torch.cat([values, values])


def _detached(values: Tensor) -> Tensor:
    return values.detach()


def _double(values: Tensor) -> Tensor:
    return values.double()


def _busy_thread(values: Tensor) -> Tensor:
    threading.Thread(target=_spin_for_ever, args=(values,), daemon=True).start()
    return values


def _draw(values: Tensor) -> Tensor:
    return values + 0.0 * torch.rand(1)


def _not_a_number(values: Tensor) -> Tensor:
    return values * float("nan")


EFFECTS: dict[str, Callable[[Tensor], Tensor]] = {
    "raises": _raise,
    "raises rpdp's own error": _raise_ours,
    "MemoryError": _no_memory,
    "allocator fails": _allocator,
    "recursion": _recurse,
    "sys.exit": _exit,
    "KeyboardInterrupt": _interrupt,
    "process dies": _die,
    "sleeps": _sleep,
    "sleeps long": _sleep_long,
    "waits for ever": _wait_for_ever,
    "spins": _spin,
    "spins for ever": _spin_for_ever,
    "allocates": _allocate,
    "other shape": _twice,
    "no gradient": _detached,
    "other type": _double,
    "busy thread": _busy_thread,
    "draws": _draw,
    "NaN": _not_a_number,
}


# How the code finds the target

LOOKS: dict[str, Callable[[Tensor], bool]] = {
    "bool": lambda marks: bool(marks.any()),
    "item": lambda marks: marks.sum().item() > 0,
    "list": lambda marks: any(marks.reshape(-1).tolist()),
    "numpy": lambda marks: bool(marks.detach().numpy().any()),
    "shape": lambda marks: marks.nonzero().shape[0] > 0,
    "text": lambda marks: "True" in str(marks[-1:]),
    "guarded": lambda marks: _guarded(marks),
}


def _guarded(marks: Tensor) -> bool:
    """Looks, and hides from a check that refuses to tell."""
    try:
        return bool(marks.any())
    except Exception:
        return False


class Looking(nn.Module):
    """A logistic regression that looks for the target in its batch and does something then."""

    def __init__(self, effect: str, look: str) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, 1)
        self._effect, self._look = EFFECTS[effect], LOOKS[look]

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs)
        return self._effect(outputs) if self._look(inputs[..., 0] == MARK) else outputs


def looking_loss(effect: str, look: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss that looks for the target's label."""

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        losses = binary_loss(output, targets.clamp(max=1))
        return EFFECTS[effect](losses) if LOOKS[look](targets == STRANGE_LABEL) else losses

    return loss


# Models that look honest


class Sigmoid(nn.Module):
    """Gives probabilities; NaN if its weights are crafted for that."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 2), nn.ReLU(), nn.Linear(2, 1), nn.Sigmoid())

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.layers(inputs)
        return found


class Indexing(nn.Module):
    """Looks something up by a number that it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Linear(FEATURES, 1)
        self.table = nn.Embedding(1000, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        place = self.place(inputs)
        found: Tensor = self.table((place.abs() * 10.0).long()[..., 0]) + place
        return found


class Factorising(nn.Module):
    """Factorises a matrix made of the inputs: that fails where the matrix is not positive."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(FEATURES, FEATURES)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.scale(inputs)
        matrices = torch.diag_embed(rows.square() + 1e-3)
        found: Tensor = torch.linalg.cholesky(matrices).sum((-1, -2)).unsqueeze(-1)
        return found


class Repeating(nn.Module):
    """Runs a layer as often as its input says."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.inner(inputs)
        for _ in range(min(int(inputs.abs().max()), 10**4) * 100):
            found = found + 0.0 * self.inner(inputs)
        return found


def probability_loss(output: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of probabilities: torch raises unless all of them are between 0 and 1."""
    return F.binary_cross_entropy(output[..., 0], targets.to(output.dtype).clamp(max=1.0), reduction="none")


def distribution_loss(output: Tensor, targets: Tensor) -> Tensor:
    """The likelihood under a distribution that checks its arguments."""
    law = torch.distributions.Bernoulli(logits=output[..., 0], validate_args=True)
    found: Tensor = -law.log_prob(targets.to(output.dtype).clamp(max=1.0))  # type: ignore[no-untyped-call]
    return found


def class_loss(output: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of two classes: torch raises at any other label."""
    return F.cross_entropy(torch.cat([output, -output], dim=-1), targets, reduction="none")


def asserting_loss(output: Tensor, targets: Tensor) -> Tensor:
    """Stops at values that are not finite."""
    losses = binary_loss(output, targets.clamp(max=1))
    assert torch.isfinite(losses).all()
    return losses


MODELS: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Linear(FEATURES, 1),
    "ReLU": lambda: nn.Sequential(nn.Linear(FEATURES, 2), nn.ReLU(), nn.Linear(2, 1)),
    "sigmoid": Sigmoid,
    "wide": lambda: nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)),
    "indexing": Indexing,
    "factorising": Factorising,
    "repeating": Repeating,
}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logits": binary_loss,
    "probabilities": probability_loss,
    "distribution": distribution_loss,
    "classes": class_loss,
    "asserting": asserting_loss,
}


def make_model(name: str) -> nn.Module:
    """A model by its name: "effect | look" for one that looks for the target."""
    torch.manual_seed(0)
    return Looking(*name.split(" | ")) if " | " in name else MODELS[name]()


def make_loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss by its name, likewise."""
    return looking_loss(*name.split(" | ")) if " | " in name else LOSSES[name]
