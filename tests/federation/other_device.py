"""A device that is not the CPU, and whole simulations on it: what can be seen of a GPU where there is none.

`other` computes on the CPU, with the same bits, and like CUDA it refuses to be mixed with it: an operation on tensors
of both raises, and so does `numpy()`. Run as a program, because torch keeps a device for the life of a process. It runs
federations on both devices and prints, as JSON, for which of them kernel and result are the same.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from rpdp.federation import Evaluation, Silo, UnprotectedSilo, devices, simulate
from rpdp.planning import Recipe
from rpdp.tasks.models.losses import cross_entropy
from rpdp.training import BadRecordWarning, Records, SlowKernelWarning
from tests.federation.references import SETTINGS
from tests.federation.world import make_public, make_silo, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "other"
_MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Elsewhere(Tensor):
    """A tensor on `other`: a tensor of the CPU that nobody can reach."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor) -> Any:
        layout: dict[str, Any] = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        device = torch.device(NAME, 0)
        made: Any = Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, device=device, **layout)
        made.held = held
        return made

    def __init__(self, held: Tensor) -> None:
        """All is done by `__new__`."""

    def data_ptr(self) -> int:
        """Where the numbers are."""
        return self.held.data_ptr()

    @property
    def data(self) -> Tensor:
        """As of any tensor."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.held = _held(value)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Compute on what is inside."""
        tensors = [each for each in tree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if func not in _MOVES and any(not isinstance(each, Elsewhere) and each.dim() > 0 for each in tensors):
            raise RuntimeError(f"{func}: tensors on two devices")
        wanted = (kwargs or {}).get("device")
        stays = isinstance(args[0], Elsewhere) if func is _MOVES[1] else wanted is None or wanted.type == NAME
        inside, named = tree.tree_map(_held, (args, kwargs or {}))
        with _disable_current_modes():
            found = func(*inside, **named if wanted is None else {**named, "device": torch.device("cpu")})
        if not stays:
            return found
        known = {id(each.held): each for each in tensors if isinstance(each, Elsewhere)}  # what was changed in place
        return tree.tree_map_only(Tensor, lambda one: known[id(one)] if id(one) in known else Elsewhere(one), found)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Elsewhere) else value


def register() -> None:
    """Make `other` a device of this process."""
    _setup_privateuseone_for_python_backend(NAME)

    def empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Tensor:
        return Elsewhere(torch.empty_strided(size, stride, dtype=dtype))

    def empty(size: Any, dtype: Any = None, **_: Any) -> Tensor:
        return Elsewhere(torch.empty(size, dtype=dtype))

    def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        _held(target).copy_(_held(source))
        return target

    kernels: dict[str, Callable[..., Any]] = {
        "aten::empty_strided": empty_strided,
        "aten::empty.memory_format": empty,
        "aten::_copy_from": copy_from,
    }
    for name, kernel in kernels.items():
        torch.library.impl(name, "PrivateUse1")(kernel)
    devices.DEVICES = (*devices.DEVICES, NAME)  # type: ignore[assignment]


class Scaled(nn.Module):
    """Without a closed form; with `looks`, for `vmap` neither."""

    def __init__(self, *, looks: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 8, 8))
        self.layer = nn.Linear(64, 3)
        self.looks = looks

    def forward(self, values: Tensor) -> Tensor:
        if self.looks and values.sum().item() > 1e9:
            values = -values
        found: Tensor = self.layer((values * self.scale).flatten(1))
        return found


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def wide() -> nn.Module:
    """More parameters than a block of noise has."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2100), nn.ReLU(), nn.Linear(2100, 3))


def fails(output: Tensor, targets: Tensor) -> Tensor:
    """A loss that cannot be computed for some records."""
    if bool((targets == 2).any()):
        raise ValueError("no such class")
    return cross_entropy(output, targets)


@dataclass(frozen=True)
class Case:
    """A federation of two silos."""

    kernel: str
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    flat: bool = False
    kind: type[Silo] = Silo
    recipe: dict[str, Any] = field(default_factory=dict)


CASES = {
    "a convolution": Case("ghost", small),
    "one layer": Case("affine", lambda: nn.Linear(64, 3), flat=True),
    "a part by vmap": Case("ghost", Scaled),
    "a part one by one": Case("ghost", lambda: Scaled(looks=True)),
    "blocks of noise": Case("ghost", wide),
    "pieces": Case("ghost", small, recipe={"micro_batch": 4}),
    "records that fail": Case("ghost", small, fails),
    "no protection": Case("ghost", small, kind=UnprotectedSilo),
    "a correction": Case("ghost", small, recipe={"backbone": "scaffold", "backbone_settings": SETTINGS["scaffold"]}),
    "a proximal term": Case(
        "ghost", small, recipe={"backbone": "fedprox", "backbone_settings": SETTINGS["fedprox"], "optimiser": "adam"}
    ),
}


def run(case: Case, device: str) -> tuple[dict[str, Any], set[str]]:
    """The outcome, and the kernels that were used."""
    public = make_public(3, 2, recipe=Recipe(learning_rate=0.1, averaged_rounds=2, **case.recipe))
    torch.manual_seed(0)
    model = case.model()
    tests = {name: _records(case, 9, 7 + place) for place, name in enumerate("ab")}
    silos = [
        make_silo(name, public, records=_records(case, 14, place), kind=case.kind, device=device)
        for place, name in enumerate("ab")
    ]
    measured = Evaluation(tests, lambda output, targets: output.argmax(1) == targets)
    result = simulate(model, case.loss, silos, public, seed=3, evaluation=measured, workers=1)
    assert {silo.announced_like(silo.runs[-1]).device.type for silo in silos} == {device}
    assert {value.device.type for value in (result.values, *model.parameters())} == {"cpu"}
    return outcome(result), {silo.kernel_name for silo in silos}


def _records(case: Case, count: int, seed: int) -> Records:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 1, 8, 8, generator=generator)
    if case.kind is Silo:
        pixels[3] = float("nan")  # contributes nothing, wherever
    return Records.of(pixels.flatten(1) if case.flat else pixels, torch.randint(3, (count,), generator=generator))


def is_apart() -> bool:
    """Whether mixing the two devices is noticed."""
    here, there = torch.ones(2), torch.ones(2).to(NAME)
    noticed = 0
    for mix in (lambda: here + there, lambda: there.add_(here), lambda: torch.stack([there, here]), there.numpy):
        try:
            mix()
        except (RuntimeError, TypeError):
            noticed += 1
    return noticed == 4 and torch.equal((there + there).cpu(), here + here)


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", SlowKernelWarning)
    warnings.simplefilter("ignore", BadRecordWarning)
    register()
    told: dict[str, bool] = {"apart": is_apart()}
    for name, case in CASES.items():
        here, there = run(case, "cpu"), run(case, NAME)
        told[name] = here == there and there[1] == {case.kernel}
    sys.stdout.write(json.dumps(told))
