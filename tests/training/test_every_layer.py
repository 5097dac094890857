"""Every layer that the docs name: the kernel chosen for it is right, bounded, probed, and sees drawn records alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rpdp.errors import PrivacyRefusal
from rpdp.sampling import PoissonSampler, Seeded
from rpdp.training import CLIP_SLACK, FlatModel, LoopKernel, NoisyStep, Records, StepSettings, make_kernel
from rpdp.training.ghost import layer_rules
from tests.training.conftest import EXAMPLES, Example, cross_entropy

pytestmark = pytest.mark.filterwarnings(
    "ignore:Using padding='same' with even kernel lengths", "ignore::rpdp.training.SlowKernelWarning"
)

DOCS = Path(__file__).parents[2] / "docs"

LAYERS: dict[str, str] = {
    "Linear": "perceptron",
    "Conv1d": "conv1d",
    "Conv2d": "conv2d gram",
    "Conv3d": "conv3d",
    "ConvTranspose1d": "transposed, one dimension",
    "ConvTranspose2d": "transposed",
    "ConvTranspose3d": "transposed, three dimensions",
    "Embedding": "embedding",
    "EmbeddingBag": "bag, mean",
    "LayerNorm": "layernorm two dimensions",
    "RMSNorm": "rms norm",
    "GroupNorm": "groupnorm vector",
    "InstanceNorm1d": "instance norm, one dimension",
    "InstanceNorm2d": "instance norm",
    "InstanceNorm3d": "instance norm, three dimensions",
    "MultiheadAttention": "attention",
    "RNN": "rnn",
    "LSTM": "lstm, two layers, both directions",
    "GRU": "gru, two layers, both directions",
    "LSTMCell": "cells",
    "Conv1D": "reversed linear",
    "scaled_dot_product_attention": "modern attention",
    "tied parameters": "tied",
    "class tokens and positions": "odd layers",
}
"""Layer → an example that has it. Adapters and `transformers` are in test_transformers, masks in test_dropout."""


def named(example: Example, dtype: torch.dtype = torch.float32) -> FlatModel:
    return example.model(dtype)


def test_the_list_names_every_class_with_a_rule() -> None:
    kinds = {
        *layer_rules._NORMS, *layer_rules._CONVOLUTIONS, nn.Linear, nn.Embedding, nn.EmbeddingBag,
        nn.MultiheadAttention, nn.RNN, nn.LSTM, nn.GRU,
    }  # fmt: skip
    assert {kind.__name__ for kind in kinds} <= set(LAYERS)


@pytest.mark.parametrize("layer", [name for name in LAYERS if name[0].isupper() and name != "Conv1D"])
def test_the_example_of_a_layer_has_it(layer: str) -> None:
    module = EXAMPLES[LAYERS[layer]].model().module
    kinds = {type(part).__name__ for part in module.modules()}
    assert layer in kinds or (layer == "LSTMCell" and kinds & {"LSTMCell", "GRUCell", "RNNCell"})


def test_the_docs_name_no_other_layer() -> None:
    text = " ".join((DOCS / "how-to/own-model.md").read_text(encoding="utf-8").split())
    (said,) = re.findall(r"- (Linear, Conv1d/2d/3d .*?) and tied parameters train fastest", text)
    families = {re.sub(r"[123]d$", "", name) for name in LAYERS}
    for word in re.findall(r"[A-Z][A-Za-z]+", said):
        assert word.removesuffix("d") in families or word in families, word


@pytest.mark.parametrize("layer", LAYERS)
def test_the_chosen_kernel_equals_one_record_at_a_time(layer: str) -> None:
    example = EXAMPLES[LAYERS[layer]]
    model, records = named(example, torch.float64), example.records(5, torch.float64, 4)
    kernel, reference = make_kernel(model, cross_entropy, records), LoopKernel(model, cross_entropy)
    clip_norm = float(reference.clipped_sum(records, 1.0).norms.median())
    found, expected = kernel.clipped_sum(records, clip_norm), reference.clipped_sum(records, clip_norm)
    assert float((found.total - expected.total).norm() / expected.total.norm()) < 1e-10
    assert torch.allclose(found.norms, expected.norms, rtol=1e-9)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_one_more_record_moves_the_sum_by_at_most_the_clip_norm(layer: str, size: float) -> None:
    """Wherever the clip norm lies: below every norm, the record fills it; above, it adds what it has."""
    example = EXAMPLES[LAYERS[layer]]
    model, records = named(example), example.records(6, torch.float32, 5)
    kernel = make_kernel(model, cross_entropy, records)
    clip_norm = size * float(kernel.clipped_sum(records, 1.0).norms.min())
    base = kernel.clipped_sum(records.rows(0, 5), clip_norm).total.double()
    moved = float((kernel.clipped_sum(records, clip_norm).total.double() - base).norm())
    assert clip_norm * (1 - 1.5 * CLIP_SLACK) < moved <= clip_norm


class Mixing(nn.Module):
    """A model after which one record takes a little of its neighbour."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Tensor:
        output: Tensor = self.inner(*inputs)
        return output + 0.05 * output.roll(1, 0)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_probe_accepts_it_and_refuses_it_where_records_mix(layer: str) -> None:
    example = EXAMPLES[LAYERS[layer]]
    records = example.records(3, torch.float32, 6)
    make_kernel(named(example), cross_entropy, records)
    with pytest.raises(PrivacyRefusal, match="another record"):
        make_kernel(FlatModel(Mixing(example.model(torch.float32).module)), cross_entropy, records)


class Faint(Mixing):
    """The same, far below what a comparison of a record alone with a batch could tell from rounding."""

    def forward(self, *inputs: Tensor) -> Tensor:
        output: Tensor = self.inner(*inputs)
        return output + 1e-4 * (output.roll(1, 0) - output)


@pytest.mark.parametrize("layer", ["Embedding", "EmbeddingBag", "tied parameters"])
def test_faint_traces_of_other_records_words_are_found(layer: str) -> None:
    """Words have no derivative."""
    example = EXAMPLES[LAYERS[layer]]
    with pytest.raises(PrivacyRefusal, match="when only the other record changes"):
        make_kernel(
            FlatModel(Faint(example.model(torch.float32).module)), cross_entropy, example.records(3, torch.float32)
        )


def test_a_loss_that_looks_at_other_classes_is_found() -> None:
    def weighted(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets) * (1 + 1e-5 * (targets == 1).sum())

    records = EXAMPLES["linear"].records(4, torch.float32)
    with pytest.raises(PrivacyRefusal, match="when only the other record changes"):
        make_kernel(EXAMPLES["linear"].model(torch.float32), weighted, records)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_step_sees_the_records_that_were_drawn_and_no_other(layer: str) -> None:
    """Also in pieces. The control: one more drawn record is another release, with the same noise."""
    example = EXAMPLES[LAYERS[layer]]
    model, records = named(example, torch.float64), example.records(9, torch.float64, 7)
    kernel = make_kernel(model, cross_entropy, records)
    drawn = PoissonSampler(np.full(9, 0.6)).draw(Seeded(3))
    assert 1 < len(drawn) < 9

    def released(rows: np.ndarray[tuple[int], np.dtype[np.int64]], data: Records, micro_batch: int) -> Tensor:
        step = NoisyStep(kernel, None, StepSettings(1.0, 1.0, 4.0, micro_batch), Seeded(8))
        step.release(data, rows)
        grad = model.values.grad
        assert grad is not None
        return grad.clone()

    whole = released(drawn, records, 512)
    assert torch.allclose(released(np.arange(len(drawn)), records.select(drawn.tolist()), 512), whole, atol=1e-5)
    assert torch.allclose(released(drawn, records, 2), whole, atol=1e-5)
    assert float((released(drawn[:-1], records, 512) - whole).norm()) > 1e-3
