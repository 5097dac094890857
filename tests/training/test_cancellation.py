"""Records whose positions cancel: norms stay true, and the sum stays bounded, where rounding would break
both."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.training import CLIP_SLACK, FlatModel, GhostKernel, Records
from rpdp.training.ghost.cancellation import GRAM_ERROR, total_norms
from rpdp.training.ghost.parameter_uses import FactorUse


def cancelling(strength: float, seed: int, positions: int = 8, size: int = 40) -> tuple[Tensor, Tensor]:
    """Factors whose positions cancel up to `strength` of their size: constant inputs, gradients that sum to
    little."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.randn(16, 1, size, generator=generator).expand(-1, positions, -1).contiguous()
    left = torch.randn(16, positions, size, generator=generator)
    left = left - left.mean(1, keepdim=True)
    return left + strength * torch.randn(16, 1, size, generator=generator), right


def exact(left: Tensor, right: Tensor) -> Tensor:
    return torch.bmm(left.double().transpose(1, 2), right.double()).square().sum((1, 2))


@pytest.mark.parametrize("strength", [1.0, 1e-1, 1e-2, 1e-3, 0.0])
@pytest.mark.parametrize(("positions", "size"), [(8, 40), (64, 384), (128, 256), (16, 1000)])
def test_the_error_of_the_gram_form_is_below_its_bound(strength: float, positions: int, size: int) -> None:
    roundoff = torch.finfo(torch.float32).eps / 2
    for seed in range(3):
        left, right = cancelling(strength, seed, positions, size)
        norms = FactorUse(left, right).gram()
        error = (norms.squared.double() - exact(left, right)).abs()
        assert bool((error <= GRAM_ERROR * roundoff * norms.scale).all())


@pytest.mark.parametrize("strength", [1.0, 1e-1, 1e-2])
def test_squared_norms_are_true_where_positions_cancel(strength: float) -> None:
    for seed in range(20):
        left, right = cancelling(strength, seed)
        ratio = total_norms([FactorUse(left, right)]).double() / exact(left, right)
        assert float((ratio - 1).abs().max()) < CLIP_SLACK


def test_the_plain_gram_form_would_not_do() -> None:
    left, right = cancelling(1e-3, 0)
    ratio = FactorUse(left, right).gram().squared.double() / exact(left, right)
    assert float((ratio - 1).abs().max()) > 10 * CLIP_SLACK


@pytest.mark.parametrize("strength", [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 0.0])
def test_no_record_adds_more_than_the_clip_norm(strength: float) -> None:
    left, right = cancelling(strength, 1)
    use = FactorUse(left, right)
    bound = 1e-3 * (1 - CLIP_SLACK)
    factors = (total_norms([use]).rsqrt() * bound).clamp(max=1.0)
    for row in range(len(left)):
        alone = FactorUse(left[row : row + 1], right[row : row + 1])
        out = torch.zeros(left.shape[2], right.shape[2])
        alone.add_sum(factors[row : row + 1], out)
        assert float(out.double().norm()) <= 1e-3


def test_constant_images_before_groupnorm_end_to_end() -> None:
    """Gradients before a GroupNorm sum to zero over a map; a constant image then cancels almost
    completely."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(8, 16, 3), nn.GroupNorm(1, 16), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )
    inputs = torch.ones(6, 8, 6, 6) + 1e-4 * torch.randn(6, 8, 6, 6)
    records = Records.of(inputs, torch.randint(3, (6,)))

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(output, targets, reduction="none")

    model = FlatModel(module)
    kernel = GhostKernel(model, loss)
    for row in range(6):
        moved = kernel.clipped_sum(records.rows(row, row + 1), 1e-3).total
        assert float(moved.double().norm()) <= 1e-3
