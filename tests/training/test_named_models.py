"""The kernel that `make_kernel` picks for the models of the experiments, against one record at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch
from rpdp_lab.models.resnet import resnet18_groupnorm
from rpdp_lab.models.text import Encoder, EncoderConfig, TextHead
from torch import nn

from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import Loss, binary_loss, cross_entropy
from rpdp.training import AffineKernel, FlatModel, GhostKernel, Kernel, LoopKernel, Records, make_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def text_head() -> nn.Module:
    """The trainable top of a BERT-like encoder, a quarter as wide as the one on disk."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        encoder = Encoder(EncoderConfig(50, 96, layers=1, heads=4, intermediate_size=192, positions=16))
    return TextHead.on_top_of(encoder, 3)


@dataclass(frozen=True)
class Named:
    """A model of the experiments and records that fit it."""

    build: Callable[[], nn.Module]
    loss: Loss
    shape: tuple[int, ...]
    classes: int
    kernel: type[Kernel]
    counts: tuple[int, ...]

    def model(self, dtype: torch.dtype) -> FlatModel:
        module = self.build().to(dtype)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():  # away from special values such as all-zero weights
            for parameter in module.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * 0.02)
        return FlatModel(module)

    def records(self, count: int, dtype: torch.dtype) -> Records:
        generator = torch.Generator().manual_seed(count)
        inputs = torch.randn(count, *self.shape, generator=generator).to(dtype)
        return Records.of(inputs, torch.randint(self.classes, (count,), generator=generator))


NAMED = {
    "logistic regression": Named(lambda: logistic_regression(13), binary_loss, (13,), 2, AffineKernel, (0, 1, 7, 33)),
    "multinomial regression": Named(
        lambda: logistic_regression(64, 10), cross_entropy, (64,), 10, AffineKernel, (0, 1, 7)
    ),
    "CNN": Named(paper_cnn, cross_entropy, (1, 28, 28), 10, GhostKernel, (0, 1, 2, 9)),
    "CNN, tanh": Named(lambda: paper_cnn(activation="tanh"), cross_entropy, (1, 28, 28), 10, GhostKernel, (0, 1, 5)),
    "ResNet-18": Named(resnet18_groupnorm, cross_entropy, (3, 32, 32), 10, GhostKernel, (0, 3)),
    "text head": Named(text_head, cross_entropy, (12, 96), 3, GhostKernel, (0, 1, 4)),
}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", NAMED)
def test_the_default_kernel_equals_one_record_at_a_time(name: str, dtype: torch.dtype) -> None:
    named = NAMED[name]
    model = named.model(dtype)
    kernel = make_kernel(model, named.loss, named.records(2, dtype))
    assert type(kernel) is named.kernel
    reference = LoopKernel(model, named.loss)
    for count in named.counts:
        records = named.records(count, dtype)
        norms = reference.clipped_sum(records, 1.0).norms
        clip_norm = float(norms.median()) if count else 1.0  # some records are clipped, some are not
        found, expected = kernel.clipped_sum(records, clip_norm), reference.clipped_sum(records, clip_norm)
        assert found.count == count
        assert distance(found.total, expected.total) < TOLERANCES[dtype]
        assert distance(found.norms, expected.norms) < TOLERANCES[dtype]
        assert bool(count) == bool(expected.total.any())


@pytest.mark.parametrize("name", ["logistic regression", "CNN", "text head"])
def test_one_more_record_moves_the_sum_by_at_most_the_clip_norm(name: str) -> None:
    named = NAMED[name]
    model, records = named.model(torch.float32), named.records(6, torch.float32)
    kernel = make_kernel(model, named.loss, records)
    clip_norm = 1e-6 * float(kernel.clipped_sum(records, 1.0).norms.min())  # gradients of at least 10⁶ L
    moved = kernel.clipped_sum(records, clip_norm).total.double()
    moved -= kernel.clipped_sum(records.rows(0, 5), clip_norm).total.double()
    assert 0.999 * clip_norm < float(moved.norm()) <= clip_norm


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-30))
