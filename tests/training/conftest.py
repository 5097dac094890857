"""Small models, one for every supported layer and combination, with records to feed them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.training import AffineKernel, FlatModel, GhostKernel, Kernel, LoopKernel, Records, VmapKernel

CLASSES = 3


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


class Residual(nn.Module):
    """In-place ReLU, a shortcut, and GroupNorm, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(2, 4, 1, stride=2)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.first(images)), inplace=True)
        hidden = F.relu(self.second(hidden) + self.shortcut(images), inplace=True)
        logits: Tensor = self.head(hidden.mean((2, 3)))
        return logits


class Tied(nn.Module):
    """Output weights are the embedding table; one layer is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5, padding_idx=0)
        self.layer = nn.Linear(5, 5)
        self.norm = nn.LayerNorm(5)
        self.output = nn.Linear(5, 7, bias=False)
        self.output.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.norm(self.layer(torch.tanh(self.layer(self.table(tokens)))))
        logits: Tensor = self.output(hidden).mean(1)
        return logits


class TiedConvolution(nn.Module):
    """One convolution weight at two strides, and one module at two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 2, 3, padding=1, groups=2)
        self.second = nn.Conv2d(2, 2, 3, stride=2, groups=2)
        self.second.weight = self.first.weight
        self.head = nn.Linear(2, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.second(torch.tanh(self.first(torch.tanh(self.first(images)))))
        logits: Tensor = self.head(hidden.mean((2, 3)))
        return logits


class Attention(nn.Module):
    """Self-attention and cross-attention with different sizes of query, key and value."""

    def __init__(self, *, batch_first: bool = True, sizes: int | None = None) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.cross = nn.MultiheadAttention(4, 2, batch_first=batch_first, kdim=sizes, vdim=sizes)
        self.first = batch_first
        self.widen = sizes
        self.head = nn.Linear(4, CLASSES)

    def forward(self, values: Tensor, forbidden: Tensor) -> Tensor:
        inputs = values if self.first else values.transpose(0, 1)
        own, _ = self.own(inputs, inputs, inputs, key_padding_mask=forbidden, need_weights=False)
        memory = torch.cat([inputs, inputs[..., :1]], -1) if self.widen else inputs * 2
        cross, weights = self.cross(own, memory, memory)
        cross = cross if self.first else cross.transpose(0, 1)
        logits: Tensor = self.head(cross.mean(1)) + weights.mean((1, 2)).unsqueeze(1)
        return logits


class Copies(nn.Module):
    """Augmented copies of a record, flattened inside the model and averaged before the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, copies: Tensor) -> Tensor:
        hidden = self.norm(torch.tanh(self.hidden(copies.flatten(0, 1))))
        logits: Tensor = self.head(hidden).unflatten(0, copies.shape[:2]).mean(1)
        return logits


class PartlyFrozen(nn.Module):
    """A frozen layer below, a frozen bias above, and a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.below = nn.Linear(4, 4).requires_grad_(False)
        self.middle = nn.Linear(4, 5)
        self.middle.bias.requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.middle(self.below(values))))
        return logits


class Reversed(nn.Module):
    """Two layers of the kind that GPT-2 of `transformers` uses, under its name."""

    def __init__(self) -> None:
        super().__init__()
        kind = type("Conv1D", (ReversedLinear,), {"__module__": "transformers.pytorch_utils"})
        self.first, self.second = kind(4, 6), kind(6, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        logits: Tensor = self.second(torch.tanh(self.first(values))).mean(1)
        return logits


class ReversedLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, values: Tensor) -> Tensor:
        return values @ self.weight + self.bias


class ModernBlock(nn.Module):
    """Attention as modern code writes it: one projection, a functional call with a causal mask, RMSNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4)
        self.project = nn.Linear(4, 12, bias=False)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        query, key, value = (
            self.project(self.norm(values)).reshape(*values.shape[:2], 2, 6).transpose(1, 2).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        logits: Tensor = self.head((values + mixed.transpose(1, 2).flatten(2)).mean(1))
        return logits


class Recurrent(nn.Module):
    """A recurrent layer, its outputs and its last states."""

    def __init__(self, layer: nn.RNNBase, *, first: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.first = first
        directions = 2 if layer.bidirectional else 1
        self.head = nn.Linear(2 * layer.hidden_size * directions, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        inputs = values if self.layer.batch_first else values.transpose(0, 1)
        state = values[:, 0, :1].expand(self.layer.num_layers, -1, self.layer.hidden_size)
        output, last = self.layer(inputs, state) if self.first else self.layer(inputs)
        output = output if self.layer.batch_first else output.transpose(0, 1)
        directions = 2 if self.layer.bidirectional else 1
        last = last[0] * last[1] if isinstance(last, tuple) else last
        ended = last[-directions:].transpose(0, 1).flatten(1)
        logits: Tensor = self.head(torch.cat([output.mean(1), ended], dim=1))
        return logits


class Cells(nn.Module):
    """A loop over time with cells."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRUCell(4, 5)
        self.lstm = nn.LSTMCell(5, 4)
        self.plain = nn.RNNCell(4, 3, bias=False, nonlinearity="relu")
        self.head = nn.Linear(3, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        hidden, state, last = None, None, None
        for step in values.unbind(1):
            hidden = self.gru(step, hidden)
            state = self.lstm(hidden, state)
            last = self.plain(state[0], last)
        logits: Tensor = self.head(last)
        return logits


class Vision(nn.Module):
    """A class token and position embeddings as plain parameters, a scale for each block, a bilinear head."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 4))
        self.positions = nn.Parameter(torch.zeros(1, 4, 4))
        self.block = Scaled()
        self.head = nn.Bilinear(4, 4, CLASSES)

    def forward(self, patches: Tensor) -> Tensor:
        values = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1) + self.positions
        hidden = self.block(values)
        logits: Tensor = self.head(hidden[:, 0], hidden[:, 1])
        return logits


class Scaled(nn.Module):
    """A layer scale, next to a layer with a closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.layer = nn.Linear(4, 4)

    def forward(self, values: Tensor) -> Tensor:
        return values + self.scale * torch.tanh(self.layer(values))


class Language(nn.Module):
    """Position embeddings without a row for each record, an output that uses the table in a functional call."""

    def __init__(self, *, rows: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.positions = nn.Embedding(6, 4)
        self.norm = nn.LayerNorm(4)
        self.rows = rows

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1])
        hidden = self.table(words) + self.positions(places.unsqueeze(0) if self.rows else places)
        logits: Tensor = F.linear(torch.tanh(self.norm(hidden)), self.table.weight).mean(1)
        return logits


Inputs = Callable[[int, torch.Generator], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Example:
    """A model and how to make inputs for it. Some of torch's recurrent functions have no batching rule for vmap."""

    build: Callable[[], nn.Module]
    inputs: Inputs
    classes: int = CLASSES
    by_vmap: bool = True

    def model(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> FlatModel:
        module = copy.deepcopy(self.build()).to(dtype)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * 0.5)
        return FlatModel(module)

    def records(self, count: int, dtype: torch.dtype, seed: int = 0) -> Records:
        generator = torch.Generator().manual_seed(seed)
        inputs = tuple(
            tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in self.inputs(count, generator)
        )
        return Records(inputs, torch.randint(self.classes, (count,), generator=generator))


def floats(*shape: int) -> Inputs:
    return lambda count, generator: (torch.randn(count, *shape, generator=generator),)


def tokens(count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    return (torch.randint(7, (count, 6), generator=generator),)


def masked(count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    forbidden = torch.rand(count, 5, generator=generator) < 0.3
    forbidden[:, 0] = False
    return torch.randn(count, 5, 4, generator=generator), forbidden


def convolution(layer: nn.Module, *shape: int, channels: int = 0) -> Example:
    channels = channels or int(layer.out_channels)  # type: ignore[arg-type]
    return Example(
        lambda: nn.Sequential(layer, nn.Tanh(), nn.Flatten(2), Mean(), nn.Linear(channels, CLASSES)), floats(*shape)
    )


def transposed(layer: nn.Module, *shape: int) -> Example:
    return convolution(nn.Sequential(layer), *shape, channels=int(layer.out_channels))  # type: ignore[arg-type]


class Mean(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return values.mean(-1)


EXAMPLES: dict[str, Example] = {
    "linear": Example(lambda: nn.Linear(4, CLASSES), floats(4)),
    "linear without bias": Example(lambda: nn.Linear(4, CLASSES, bias=False), floats(4)),
    "perceptron": Example(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, CLASSES)), floats(4)
    ),
    "linear, positions, gram": Example(
        lambda: nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Flatten(1, -2), nn.Flatten(), nn.Linear(24, CLASSES)),
        floats(3, 9),
    ),
    "linear, many dimensions, direct": Example(
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(40, CLASSES)), floats(2, 5, 2, 3)
    ),
    "conv1d": convolution(nn.Conv1d(2, 3, 3, stride=2, padding=1, dilation=2), 2, 9),
    "conv2d small maps": convolution(nn.Conv2d(4, 6, 3, padding=1), 4, 1, 1),
    "conv2d gram": convolution(nn.Conv2d(6, 8, 3, padding=1), 6, 3, 3),
    "conv2d strided gram": convolution(nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False), 8, 4, 4),
    "conv2d direct": convolution(nn.Conv2d(1, 2, (4, 3), stride=(2, 1), padding=(2, 0)), 1, 9, 8),
    "conv2d groups": convolution(nn.Conv2d(6, 12, 3, padding=1, groups=3), 6, 3, 3),
    "conv2d depthwise": convolution(nn.Conv2d(4, 4, 3, padding=1, groups=4), 4, 6, 6),
    "conv2d dead taps": convolution(nn.Conv2d(3, 4, 5, stride=2, padding=4, dilation=2), 3, 2, 3),
    "conv2d same": convolution(nn.Conv2d(6, 8, 4, padding="same"), 6, 3, 4),
    "conv2d valid dilated": convolution(nn.Conv2d(5, 7, 2, padding="valid", dilation=2), 5, 4, 5),
    "conv2d circular": convolution(nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular"), 6, 3, 3),
    "conv3d": convolution(nn.Conv3d(2, 3, (1, 3, 2), padding=(0, 1, 1)), 2, 2, 3, 3),
    "residual": Example(Residual, floats(2, 7, 7)),
    "groupnorm vector": Example(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.Linear(8, CLASSES)), floats(4)
    ),
    "layernorm two dimensions": Example(
        lambda: nn.Sequential(nn.LayerNorm((3, 4)), nn.Flatten(), nn.Linear(12, CLASSES)), floats(3, 4)
    ),
    "embedding": Example(
        lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=2), nn.Flatten(), nn.Linear(24, CLASSES)), tokens
    ),
    "tied": Example(Tied, tokens, classes=7),
    "tied convolution": Example(TiedConvolution, floats(2, 7, 7)),
    "attention": Example(Attention, masked),
    "attention, other sizes": Example(lambda: Attention(sizes=5), masked),
    "attention, records second": Example(lambda: Attention(batch_first=False), masked),
    "transformer": Example(
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Flatten(), nn.Linear(20, CLASSES)
        ),
        floats(5, 4),
    ),
    "rnn": Example(lambda: Recurrent(nn.RNN(4, 5, batch_first=True), first=True), floats(6, 4)),
    "rnn, relu, no bias": Example(
        lambda: Recurrent(nn.RNN(4, 5, nonlinearity="relu", bias=False)), floats(6, 4), by_vmap=False
    ),
    "lstm": Example(lambda: Recurrent(nn.LSTM(4, 5, batch_first=True)), floats(6, 4), by_vmap=False),
    "lstm, two layers, both directions": Example(
        lambda: Recurrent(nn.LSTM(4, 3, 2, bidirectional=True)), floats(3, 4), by_vmap=False
    ),
    "gru": Example(lambda: Recurrent(nn.GRU(4, 5, batch_first=True), first=True), floats(6, 4)),
    "gru, two layers, both directions": Example(
        lambda: Recurrent(nn.GRU(4, 3, 2, bidirectional=True, batch_first=True, bias=False)),
        floats(3, 4),
        by_vmap=False,
    ),
    "cells": Example(Cells, floats(3, 4), by_vmap=False),
    "transposed": transposed(nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), 3, 4, 3),
    "transposed groups, dilated": transposed(
        nn.ConvTranspose2d(4, 6, (3, 2), groups=2, dilation=2, bias=False), 4, 3, 5
    ),
    "transposed, one dimension": transposed(nn.ConvTranspose1d(2, 3, 4, stride=3), 2, 7),
    "transposed gram": transposed(nn.ConvTranspose2d(12, 8, 3, padding=1), 12, 2, 2),
    "transposed, three dimensions": transposed(nn.ConvTranspose3d(2, 3, 2, stride=(1, 2, 1)), 2, 2, 2, 3),
    "instance norm, one dimension": Example(
        lambda: nn.Sequential(nn.InstanceNorm1d(3, affine=True), nn.Flatten(), nn.Linear(15, CLASSES)), floats(3, 5)
    ),
    "instance norm, three dimensions": Example(
        lambda: nn.Sequential(nn.InstanceNorm3d(2, affine=True), nn.Flatten(), nn.Linear(24, CLASSES)),
        floats(2, 2, 2, 3),
    ),
    "instance norm": Example(
        lambda: nn.Sequential(nn.InstanceNorm2d(3, affine=True), nn.Flatten(), nn.Linear(48, CLASSES)), floats(3, 4, 4)
    ),
    "rms norm": Example(
        lambda: nn.Sequential(nn.RMSNorm((3, 4)), nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES)), floats(3, 4)
    ),
    "modern attention": Example(ModernBlock, floats(5, 4)),
    "bag, sum": Example(lambda: nn.Sequential(nn.EmbeddingBag(7, 4, mode="sum"), nn.Linear(4, CLASSES)), tokens),
    "bag, mean": Example(lambda: nn.Sequential(nn.EmbeddingBag(7, 4, padding_idx=2), nn.Linear(4, CLASSES)), tokens),
    "reversed linear": Example(Reversed, floats(5, 4)),
    "odd layers": Example(Vision, floats(3, 4)),
    "positions for all records": Example(lambda: Language(rows=False), tokens, classes=7),
    "positions for all records, one row": Example(lambda: Language(rows=True), tokens, classes=7),
    "augmented copies": Example(Copies, floats(3, 4)),
    "partly frozen": Example(PartlyFrozen, floats(4)),
}


KERNELS: list[type[Kernel]] = [GhostKernel, VmapKernel, LoopKernel]
SMALL = ("residual", "tied", "perceptron", "linear")


@dataclass(frozen=True)
class Case:
    """A kernel and an example that it must be right for."""

    kind: type[Kernel]
    example: Example

    def kernel(self, model: FlatModel) -> Kernel:
        if self.kind is GhostKernel:
            return GhostKernel.fitted(model, cross_entropy, self.example.records(2, model.values.dtype))
        return self.kind(model, cross_entropy)


def cases(names: Iterable[str]) -> list[object]:
    chosen = [(kind, name) for name in names for kind in KERNELS if kind is not VmapKernel or EXAMPLES[name].by_vmap]
    chosen += [(AffineKernel, name) for name in names if name.startswith("linear") and "," not in name]
    return [pytest.param(Case(kind, EXAMPLES[name]), id=f"{kind.name}, {name}") for kind, name in chosen]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Tiny models on two threads mostly wait for each other, above all beside another test process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=cases(EXAMPLES))
def case(request: pytest.FixtureRequest) -> Case:
    """Every kernel with every example it supports."""
    found: Case = request.param
    return found


@pytest.fixture(params=cases(SMALL))
def small_case(request: pytest.FixtureRequest) -> Case:
    """Every kernel with a few examples."""
    found: Case = request.param
    return found


@pytest.fixture(params=list(EXAMPLES))
def example(request: pytest.FixtureRequest) -> Example:
    """Every example."""
    return EXAMPLES[request.param]
