"""Models and losses whose errors, time or memory depend on a record's values are refused (privacy.md, rule 16)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.errors import PrivacyRefusal
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import Records, require_value_independent

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = Records.of(torch.full((3, 6), float("nan")), torch.zeros(3, dtype=torch.int64))
IMAGES = Records.of(torch.zeros(3, 1, 8, 8), torch.zeros(3, dtype=torch.int64))
WORDS = Records.of(torch.zeros(3, 5, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
SERIES = Records.of(torch.zeros(3, 5, 6), torch.zeros(3, dtype=torch.int64))
NUMBERS = Records.of(torch.zeros(3, 6), torch.zeros(3))


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def on_probabilities(output: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy(torch.sigmoid(output[:, 0]), targets.float(), reduction="none")


class After(nn.Module):
    """A linear layer, and something that is done with its output and the inputs."""

    def __init__(self, then: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.then = then

    def forward(self, inputs: Tensor) -> Tensor:
        return self.then(self.layer(inputs), inputs)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.Linear(8, 3)

    def forward(self, words: Tensor) -> Tensor:
        seen = self.words(words)
        return torch.as_tensor(self.layer(self.attention(seen, seen, seen, need_weights=False)[0].mean(1)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(6, 8, batch_first=True)
        self.layer = nn.Linear(8, 3)

    def forward(self, series: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(self.cells(series)[0][:, -1]))


def convolutional() -> nn.Module:
    layers = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("module", "loss", "records"),
    [
        (nn.Linear(6, 1), binary_loss, FEATURES),
        (nn.Linear(6, 3), cross_entropy, FEATURES),
        (nn.Linear(6, 1), lambda output, targets: (output[:, 0] - targets).square(), NUMBERS),
        (After(lambda output, inputs: torch.where(inputs[:, :1] > 0, output, -output)), cross_entropy, FEATURES),
        (After(lambda output, _: output.masked_fill(output > 3, 0.0)), cross_entropy, FEATURES),
        (convolutional(), cross_entropy, IMAGES),
        (Attention(), cross_entropy, WORDS),
        (Recurrent(), cross_entropy, SERIES),
    ],
    ids=["logistic", "linear", "squares", "where", "masked", "convolutional", "attention", "recurrent"],
)
def test_usual_models_pass_whatever_the_records_hold(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], records: Records
) -> None:
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert require_value_independent(module, loss, records) == []
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def raising(output: Tensor, targets: Tensor) -> Tensor:
    return torch.as_tensor(torch.linalg.cholesky(output.unsqueeze(2) * output.unsqueeze(1) + torch.eye(3)).sum((1, 2)))


class OnlyTheLast(nn.Module):
    """An error that no input and no weight causes, only the output of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 3)
        self.squash = nn.Tanh()

    def forward(self, inputs: Tensor) -> Tensor:
        squashed = self.squash(self.first(inputs).nan_to_num(0.0, 0.0, 0.0))
        product = squashed.unsqueeze(2) * squashed.unsqueeze(1) + torch.eye(3)
        return torch.as_tensor(torch.linalg.cholesky(product).sum(2))


@pytest.mark.parametrize(
    ("module", "loss", "records", "where"),
    [
        (nn.Linear(6, 1), on_probabilities, FEATURES, "in the inputs: RuntimeError: all elements of input should be"),
        (nn.Sequential(nn.Embedding(9, 1), nn.Flatten()), on_probabilities, WORDS, "in the weights"),
        (nn.Linear(6, 3), raising, FEATURES, "in the inputs: _LinAlgError"),
        (OnlyTheLast(), cross_entropy, FEATURES, "in the output of layer squash"),
    ],
    ids=["probabilities", "words", "decomposition", "inside"],
)
def test_what_raises_on_nan_is_refused_with_advice(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], records: Records, where: str
) -> None:
    with pytest.raises(PrivacyRefusal, match=where) as told:
        require_value_independent(module, loss, records)
    assert "F.binary_cross_entropy_with_logits in place of F.binary_cross_entropy" in str(told.value)


def sleeping(output: Tensor, inputs: Tensor) -> Tensor:
    if (inputs > 3).any():
        time.sleep(1.0)
    return output


def endless(output: Tensor, inputs: Tensor) -> Tensor:
    while inputs.max() > 3:
        pass
    return output


def asserted(output: Tensor, inputs: Tensor) -> Tensor:
    if not bool(inputs.isfinite().all()):
        raise ValueError("not finite")
    return output


def only_with_values(output: Tensor, inputs: Tensor) -> Tensor:
    """Looks at values where there are some: a run on tensors without values shows nothing."""
    if "Fake" not in type(inputs).__name__ and bool((inputs + 1).sum() > 1e9):
        return -output
    return output


DEPENDENT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sleeping": sleeping,
    "endless": endless,
    "allocating": lambda output, inputs: output + torch.zeros(int(inputs.abs().max() * 1e6)).sum(),
    "number": lambda output, inputs: output * float(inputs.sum()),
    "list": lambda output, inputs: output * inputs.tolist()[0][0],
    "numpy": lambda output, inputs: output * float(inputs.detach().numpy().sum()),
    "chosen rows": lambda output, inputs: output + inputs[inputs > 0].sum(),
    "places": lambda output, inputs: output + inputs.nonzero().sum(),
    "different": lambda output, inputs: output + torch.unique(inputs).sum(),
    "equal": lambda output, inputs: output if torch.equal(inputs, inputs) else -output,
    "asserted": asserted,
    "only tensors with values": only_with_values,
    "repeated": lambda output, inputs: output + torch.repeat_interleave(inputs[:, 0], inputs[:, 1].long().abs()).sum(),
}


def test_the_line_is_named() -> None:
    def branching(output: Tensor, targets: Tensor) -> Tensor:
        return output[:, 0] if bool(output.sum() > 0) else -output[:, 0]

    records = Records.of(torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(PrivacyRefusal, match=r"\(branching, test_value_checks.py line \d+\)"):
        require_value_independent(nn.Linear(2, 1), branching, records)


@pytest.mark.parametrize("name", DEPENDENT)
def test_branches_and_sizes_that_depend_on_values_are_refused(name: str) -> None:
    with pytest.raises(PrivacyRefusal, match="can depend on the values of a record"):
        require_value_independent(After(DEPENDENT[name]), cross_entropy, NUMBERS_AND_CLASSES)


NUMBERS_AND_CLASSES = Records.of(torch.zeros(3, 6), torch.zeros(3, dtype=torch.int64))


def test_a_loss_that_branches_is_refused_too() -> None:
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets) * (2.0 if (targets > 1).any() else 1.0)

    with pytest.raises(PrivacyRefusal, match="can depend on the values"):
        require_value_independent(nn.Linear(6, 3), loss, FEATURES)


def test_a_gradient_that_branches_is_refused_too() -> None:
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, values: Tensor) -> Tensor:
            return values * 1.0

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return gradient * 2.0 if gradient.sum() > 0 else gradient

    def odd(output: Tensor, _: Tensor) -> Tensor:
        return torch.as_tensor(Odd.apply(output))  # type: ignore[no-untyped-call]

    with pytest.raises(PrivacyRefusal, match="can depend on the values"):
        require_value_independent(After(odd), cross_entropy, FEATURES)


def test_what_cannot_be_traced_is_named_as_not_covered() -> None:
    @torch.library.custom_op("rpdp_test::untraceable", mutates_args=())
    def untraceable(values: Tensor) -> Tensor:
        return values.clone()

    untraceable.register_autograd(lambda _, gradient: gradient, setup_context=lambda *_, **__: None)
    notes = require_value_independent(After(lambda output, _: untraceable(output)), cross_entropy, FEATURES)
    assert len(notes) == 1
    assert notes[0].startswith("not covered: whether the time and memory of model and loss depend on the values")
