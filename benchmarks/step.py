"""The private step against the plain step and against Opacus 1.6, and peak memory.

Every ratio is a step against a step on the same batch in the same memory format: forward, backward, clipping,
secure noise, optimiser on one side; forward, backward, optimiser on the other. `…_noise_free` leaves out the
noise, whose price does not depend on the batch (`benchmarks/noise.py` measures it). Opacus: `hooks`
materialises per-record gradients, `ghost` runs two backwards.

    [RPDP_BENCHMARK_THREADS=2] [RPDP_BENCHMARK_TASKS=gru_64,lstm_64] python benchmarks/step.py [--quick] [--json]

One thread by default: threads that wait for each other on a shared machine can make any ratio. On a machine with more
cores than threads, noise for large models is made on a second thread (`rpdp.training.noise_addition`); `taskset -c 0`
shows the ratios without it. The allocator is told to keep the memory that is freed: otherwise what ran before decides
which of two steps pays for fetching pages anew, and the ratio of the small CNN wanders between 1.1 and 1.7.
"""

from __future__ import annotations

import ctypes
import os
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rpdp_lab.models.resnet import resnet18_groupnorm
from rpdp_lab.models.text import TextHead
from rpdp_lab.models.text.encoder import EncoderConfig, EncoderLayer
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from rpdp.sampling import Secure
from rpdp.sampling.noise_blocks import GaussianBlocks
from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import binary_loss, cross_entropy
from rpdp.training import FlatModel, NoisyStep, Records, StepSettings, make_kernel

if TYPE_CHECKING:  # mypy sees a package, `python benchmarks/name.py` sees a neighbour
    from benchmarks._harness import Benchmark
    from benchmarks._sequence_models import LENGTH, WORDS, Sequences, SmallTransformer, bert_with_adapters
else:
    from _harness import Benchmark
    from _sequence_models import LENGTH, WORDS, Sequences, SmallTransformer, bert_with_adapters

Loss = Callable[[Tensor, Tensor], Tensor]
LEARNING_RATE = 1e-3
HIDDEN, TOKENS = 384, 64


class NoNoise(Secure):
    """For the share of the noise only: a step without it protects nobody."""

    def fill_gaussian(self, out: Any, std: float) -> None:
        """Zeros."""
        out[...] = 0.0

    def gaussian_blocks(self) -> Any:
        """Zeros."""
        return ZeroBlocks(b"")


class ZeroBlocks(GaussianBlocks):
    """Of zeros."""

    def fill(self, number: int, out: Any, std: float) -> None:
        """Zeros."""
        out[...] = 0.0


@dataclass(frozen=True)
class Task:
    """A model, a loss and one batch."""

    name: str
    build: Callable[[], nn.Module]
    loss: Loss
    inputs: Tensor | tuple[Tensor, ...]
    targets: Tensor
    goal: float
    repeats: int
    inner: int = 1
    channels_last: bool = False
    theirs: Callable[[], nn.Module] | None = None
    """The same model of layers that Opacus supports."""

    @property
    def records(self) -> Records:
        """The batch as records."""
        return Records.of(self.inputs, self.targets)


def keep_freed_memory() -> None:
    """Tell the allocator not to hand freed memory back to the system; only glibc has this switch."""
    trim_threshold, map_threshold, never = -1, -3, 2**30
    if hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(trim_threshold, never)
        library.mallopt(map_threshold, never)


def text_head() -> nn.Module:
    config = EncoderConfig(
        vocabulary_size=100, hidden_size=HIDDEN, layers=1, heads=12, intermediate_size=4 * HIDDEN, positions=TOKENS
    )
    return TextHead(EncoderLayer(config), nn.Linear(HIDDEN, HIDDEN), 3)


def labels(count: int, classes: int) -> Tensor:
    return torch.randint(classes, (count,))


def tasks(quick: bool) -> list[Task]:
    torch.manual_seed(0)
    images = torch.randn(400, 1, 28, 28)
    return [
        Task("logistic_regression", lambda: logistic_regression(13), binary_loss, torch.randn(64, 13),
             labels(64, 2).float(), 1.5, 45, inner=30),
        Task("cnn_400", paper_cnn, cross_entropy, images, labels(400, 10), 1.3, 21, channels_last=True),
        Task("cnn_400_channels_first", paper_cnn, cross_entropy, images, labels(400, 10), 1.3, 15),
        Task("resnet18_64", resnet18_groupnorm, cross_entropy, torch.randn(64, 3, 32, 32), labels(64, 10), 1.3,
             9 if quick else 15),
        Task("bert_last_layers_64", text_head, cross_entropy, torch.randn(64, TOKENS, HIDDEN), labels(64, 3), 1.1, 15),
    ]  # fmt: skip


def sequence_tasks(quick: bool) -> list[Task]:
    """Recurrent layers against Opacus' own, a transformer without and with dropout, adapters on a BERT."""
    from opacus.layers import DPGRU, DPLSTM  # type: ignore[import-untyped]

    torch.manual_seed(0)
    repeats = 9 if quick else 15
    sequences, words = torch.randn(64, 64, 64), torch.randint(WORDS, (32, LENGTH))
    made: list[Task] = []
    for name, ours, theirs, goal in (("gru", nn.GRU, DPGRU, 2.5), ("lstm", nn.LSTM, DPLSTM, 2.5)):
        made.append(
            Task(f"{name}_64", lambda ours=ours: Sequences(ours(64, 128, batch_first=True), 128), cross_entropy,  # type: ignore[misc]
                 sequences, labels(64, 10), goal, repeats,
                 theirs=lambda theirs=theirs: Sequences(theirs(64, 128, batch_first=True), 128))  # type: ignore[misc]
        )  # fmt: skip
    made += [
        Task("transformer_32", SmallTransformer, cross_entropy, words, labels(32, 10), 1.4, repeats),
        Task("transformer_dropout_32", lambda: SmallTransformer(0.1), cross_entropy, words, labels(32, 10), 1.4,
             repeats),
    ]  # fmt: skip
    if find_spec("transformers") and find_spec("peft"):
        tokens, mask = torch.randint(1000, 30000, (16, 32)), torch.ones(16, 32, dtype=torch.int64)
        made.append(
            Task("lora_bert_16", bert_with_adapters, cross_entropy, (tokens, mask), labels(16, 3), 1.2, repeats)
        )
    return made


def plain_step(task: Task) -> Callable[[], object]:
    model, records = task.build(), task.records
    prepare = FlatModel(task.build(), channels_last=task.channels_last).prepare
    if task.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    drawn = np.arange(len(records))

    def step() -> None:
        rows = torch.as_tensor(drawn)
        optimiser.zero_grad()
        batch = records.select(rows)
        losses = task.loss(model(*[prepare(tensor) for tensor in batch.inputs]), batch.targets)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def private_step(task: Task, *, noise: bool = True) -> Callable[[], object]:
    model = FlatModel(task.build(), channels_last=task.channels_last)
    kernel = make_kernel(model, task.loss, task.records)
    optimiser = torch.optim.SGD([model.values], lr=LEARNING_RATE)
    settings = StepSettings(clip_norm=1.0, noise_multiplier=1.0, normaliser=float(len(task.records)))
    step = NoisyStep(kernel, optimiser, settings, Secure() if noise else NoNoise())
    drawn = np.arange(len(task.records))
    records = task.records
    return lambda: step(records, drawn)


def opacus_step(task: Task, mode: str) -> Callable[[], object]:
    from opacus import PrivacyEngine  # type: ignore[import-untyped]
    from torch.utils.data import DataLoader, TensorDataset

    warnings.filterwarnings("ignore")
    model, records = (task.theirs or task.build)().train(), task.records
    optimiser: Any = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loader = DataLoader(TensorDataset(*records.inputs, records.targets), batch_size=len(records))

    class Criterion(nn.Module):
        """Opacus wants a criterion with a `reduction`."""

        reduction = "mean"

        def forward(self, output: Tensor, targets: Tensor) -> Tensor:
            losses = task.loss(output, targets)
            return losses.mean() if self.reduction == "mean" else losses

    made: tuple[Any, ...] = PrivacyEngine().make_private(
        module=model, optimizer=optimiser, criterion=Criterion(), data_loader=loader, noise_multiplier=1.0,
        max_grad_norm=1.0, poisson_sampling=False, grad_sample_mode=mode,
    )  # fmt: skip
    wrapped, optimiser = made[0], made[1]
    criterion = made[2] if mode == "ghost" else Criterion()

    def step() -> None:
        optimiser.zero_grad()
        criterion(wrapped(*records.inputs), records.targets).backward()
        optimiser.step()

    return step


def measure(bench: Benchmark, task: Task) -> None:
    plain, private = plain_step(task), private_step(task)
    bench.compare(task.name, private, plain, goal=task.goal, repeats=task.repeats, inner=task.inner)
    quiet = private_step(task, noise=False)
    bench.compare(f"{task.name}_noise_free", quiet, plain, repeats=task.repeats, inner=task.inner)
    for mode in ("hooks", "ghost"):
        repeats = 3 if task.name.startswith("resnet") else max(3, task.repeats // 3)
        try:
            theirs = opacus_step(task, mode)
            theirs()
        except Exception as error:
            print(f"{'':9} {task.name}_opacus_{mode}: Opacus fails with {type(error).__name__}: {error}")
            continue
        bench.compare(f"{task.name}_opacus_{mode}", theirs, plain, repeats=repeats, inner=task.inner)


def peak_memory(step: Callable[[], object]) -> float:
    """Megabytes that one step holds at its peak beyond what it holds between steps: tensors plus numpy's arrays."""
    step()
    tracemalloc.start()
    step()
    arrays = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    results: Any = profiler.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return float(held.max() + arrays) / 2**20


def measure_memory(bench: Benchmark, task: Task) -> None:
    """Our step keeps its gradient buffer between steps, the plain step allocates one each time."""
    plain = peak_memory(plain_step(task))
    buffer = 4 * sum(value.numel() for value in task.build().parameters()) / 2**20
    ours = peak_memory(private_step(task)) + buffer
    bench.record(f"{task.name}_memory", ours / plain, goal=1.3, context=f"{ours:.0f} MB against {plain:.0f} MB")
    for mode in ("hooks", "ghost"):
        theirs = peak_memory(opacus_step(task, mode))
        context = f"{theirs:.0f} MB against {plain:.0f} MB"
        bench.record(f"{task.name}_memory_opacus_{mode}", theirs / plain, context=context)


def main() -> None:
    keep_freed_memory()
    torch.set_num_threads(int(os.environ.get("RPDP_BENCHMARK_THREADS", "1")))
    bench = Benchmark("Private step against plain step")
    chosen = tasks(bench.quick)
    wanted = os.environ.get("RPDP_BENCHMARK_TASKS", "").split(",")
    for task in [task for task in (*chosen, *sequence_tasks(bench.quick)) if wanted == [""] or task.name in wanted]:
        measure(bench, task)
    if wanted == [""]:
        measure_memory(bench, next(task for task in chosen if task.name.startswith("resnet")))
    bench.finish()


if __name__ == "__main__":
    main()
