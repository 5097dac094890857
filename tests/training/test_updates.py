"""The product's own SGD, momentum and Adam."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from rpdp.training.updates import Adam, Sgd

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from rpdp.training.updates import Optimiser

EXAMPLE = Path(__file__).parents[2] / "examples" / "breast_cancer.toml"
PAIRS: dict[str, tuple[Callable[[Tensor], Optimiser], Callable[[Tensor], Optimiser]]] = {
    "sgd": (lambda v: Sgd(v, 0.3), lambda v: torch.optim.SGD([v], lr=0.3)),
    "momentum": (lambda v: Sgd(v, 0.3, 0.7), lambda v: torch.optim.SGD([v], lr=0.3, momentum=0.7)),
    "adam": (lambda v: Adam(v, 0.01), lambda v: torch.optim.Adam([v], lr=0.01)),
}


def path(make: Callable[[Tensor], Optimiser]) -> list[Tensor]:
    """The values after each of 50 steps with gradients of very different sizes."""
    numbers = torch.Generator().manual_seed(3)
    values = torch.nn.Parameter(torch.randn(1003, generator=numbers))
    optimiser, seen = make(values), []
    for _ in range(50):
        values.grad = torch.randn(1003, generator=numbers) * 10 ** (4 * torch.rand(1003, generator=numbers) - 3)
        optimiser.step()
        seen.append(values.detach().clone())
    return seen


@pytest.mark.parametrize("name", PAIRS)
def test_they_move_as_torch_does_to_the_bit(name: str) -> None:
    own, of_torch = PAIRS[name]
    assert all(map(torch.equal, path(own), path(of_torch)))


def test_the_comparison_would_see_another_rule() -> None:
    """Control: momentum that damps the new gradient."""
    other = path(lambda v: torch.optim.SGD([v], lr=0.3, momentum=0.7, dampening=0.01))
    assert not torch.equal(path(PAIRS["momentum"][0])[-1], other[-1])


def test_gradients_are_left_alone_and_start_no_graph() -> None:
    values = torch.nn.Parameter(torch.ones(2))
    values.grad = torch.ones(2)
    for optimiser in (Sgd(values, 0.5, 0.9), Adam(values, 0.5)):
        optimiser.step()
        optimiser.step()
    assert torch.equal(values.grad, torch.ones(2))
    assert values.is_leaf


def test_a_whole_run_does_not_load_the_compiler_of_torch(tmp_path: Path) -> None:
    program = (
        "import sys, torch\n"
        "from rpdp.cli.run import run\n"
        f"assert run(['train', {str(EXAMPLE)!r}, '--out', 'runs']) == 0\n"
        "print('torch._dynamo' in sys.modules)\n"
        "torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=1.0)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path)
    assert shown.stdout.split()[-2:] == ["False", "True"]
