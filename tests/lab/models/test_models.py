"""Parameter counts of the paper, shapes, per-record losses, independence of records, reproducible starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from rpdp_lab.models.resnet import resnet18_groupnorm

from rpdp.errors import InputError
from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import binary_loss, cross_entropy, predicted_classes

if TYPE_CHECKING:
    from torch import nn


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (logistic_regression(13), 14),
        (logistic_regression(30), 31),
        (logistic_regression(64, 10), 650),
        (paper_cnn(), 26_010),
        (paper_cnn(activation="tanh"), 26_010),
        (resnet18_groupnorm(), 11_181_642),
    ],
)
def test_parameter_counts(model: nn.Module, expected: int) -> None:
    assert size(model) == expected


@pytest.mark.parametrize(("model", "shape"), [(paper_cnn(), (1, 28, 28)), (resnet18_groupnorm(), (3, 32, 32))])
def test_image_models_treat_records_one_by_one(model: nn.Module, shape: tuple[int, ...]) -> None:
    batch = images(3, *shape)
    outputs = model(batch)
    assert outputs.shape == (3, 10)
    alone = torch.cat([model(record[None]) for record in batch])
    assert torch.allclose(outputs, alone, atol=1e-4)
    assert model(batch[:0]).shape == (0, 10)
    assert not list(model.buffers())


def test_a_seed_fixes_the_start_and_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = paper_cnn(seed=1), paper_cnn(seed=1), paper_cnn(seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first[0].weight, other[0].weight)  # type: ignore[arg-type]


def test_losses_return_one_value_per_record() -> None:
    outputs, targets = images(5, 1), torch.tensor([0, 1, 1, 0, 1])
    values = binary_loss(outputs, targets)
    signs = 2 * targets - 1
    assert torch.allclose(values, torch.log1p(torch.exp(-signs * outputs[:, 0])), atol=1e-6)
    assert torch.equal(values, binary_loss(outputs[:, 0], targets))

    logits, classes = images(5, 3), torch.tensor([0, 2, 1, 1, 0])
    expected = torch.logsumexp(logits, 1) - logits[torch.arange(5), classes]
    assert torch.allclose(cross_entropy(logits, classes), expected, atol=1e-6)


def test_empty_batches_have_empty_losses() -> None:
    assert binary_loss(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long)).shape == (0,)
    assert cross_entropy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_predicted_classes() -> None:
    assert predicted_classes(torch.tensor([[-1.0], [2.0]])).tolist() == [0, 1]
    assert predicted_classes(torch.tensor([[0.1, 0.3, 0.2], [3.0, 1.0, 2.0]])).tolist() == [1, 0]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="features=0"):
        logistic_regression(0)
    with pytest.raises(InputError, match="classes=1"):
        logistic_regression(3, 1)
    with pytest.raises(InputError, match="classes=1"):
        resnet18_groupnorm(1)
    with pytest.raises(InputError, match=r"outputs of shape \(4, 3\) must be one logit per record"):
        binary_loss(torch.zeros(4, 3), torch.zeros(4))
