"""One whole federated MNIST round on two cores: rpdp's simulator against Opacus 1.6 and against FedAvg without privacy.

Ten silos, all joining, 50 local steps each, the 26,010-parameter CNN; about 442 records drawn into a step (σ = 10.7,
such that q = 1 costs ε = 10 by RDP). All train on the very same Poisson batches, in turn, round by round:

- rpdp: `simulate` with two worker processes of one thread;
- Opacus: GradSampleModule and DPOptimizer in two such processes, and in one process with torch's own number of threads
  (a few steps per silo, scaled up: it is the slower one, and much so on a busy machine); the faster of the two counts;
- plain: forward, backward, SGD in two such processes, channels-last if that is faster (it is).

    RPDP_DATA=/directory/with/mnist python benchmarks/round.py [--quick] [--json] [--steps 50] [--rounds 3]
    RPDP_DATA=/directory/with/mnist python benchmarks/round.py --against ../before [--steps 5] [--rounds 9]

The second one times rpdp's rounds alone, in this source tree and in another one.

The goals are about seconds on an idle machine. Seconds of processor time of all processes are shown beside them: on a
busy machine they are the steadier measure. Planning, admission and forking happen once per run, not once per round;
they are shown, and not part of a ratio.
Without MNIST at hand, random images of its size are used: the arithmetic is the same.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rpdp_lab.tasks import mnist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rpdp import BudgetTable, PublicPlan, Schedule, SiloPlan, calibrate_noise
from rpdp.budgets import ThreeLevels
from rpdp.errors import InputError
from rpdp.federation import Policy, RoundLog, Silo, simulate
from rpdp.federation.workers import make_pool, one_thread
from rpdp.ledger import Charge, MemoryAccount
from rpdp.planning import Recipe
from rpdp.sampling import PoissonSampler, Seeded
from rpdp.training import Records

if TYPE_CHECKING:  # mypy sees a package, `python benchmarks/name.py` sees a neighbour
    from benchmarks._against import HERE, work_in
    from benchmarks._harness import Benchmark
else:
    from _against import HERE, work_in
    from _harness import Benchmark

SEED = 0
WORKERS = 2
FEW = 2
SILOS, RECORDS = 10, 3960  # two thirds of 6,000 each, where MNIST is not at hand
MNIST = mnist()
Draws = list[NDArray[np.int64]]
Train = Callable[[str, NDArray[np.float32], Draws], NDArray[np.float32]]
"""From a silo, the flat model and the batches of its steps to the change of the model."""


class EnoughError(Exception):
    """All rounds that were asked for are timed."""


class AllHeads(MemoryAccount):
    """Every silo joins every round, so that all rounds are the same work."""

    def charge(
        self,
        run: str,
        number: int,
        coin: Callable[[], bool],
        rounds_to_join: Callable[[], tuple[int, ...]] | None = None,
    ) -> Charge:
        """Charge a round; the coin shows heads."""
        return super().charge(run, number, lambda: True, rounds_to_join)


@dataclass(frozen=True)
class Setting:
    """A federation with the paper's plan, of which each round may be shortened."""

    records: dict[str, Records]
    plans: dict[str, SiloPlan]
    public: PublicPlan

    @property
    def expected_batch(self) -> float:
        """Records per local step, mean over the silos."""
        return statistics.mean(plan.expected_batch for plan in self.plans.values())

    def silos(self) -> list[Silo]:
        """Silos that have their plans already: planning is not what is timed."""
        return [
            Silo(
                name,
                self.records[name],
                BudgetTable(plan.ids, plan.budget),
                policy=Policy.of(self.public),
                account=AllHeads(len(plan)),
                planner=lambda public, ids, allowed, plan=plan: plan,  # type: ignore[misc]
            )
            for name, plan in self.plans.items()
        ]

    def draws(self, number: int) -> dict[str, Draws]:
        """The batches that rpdp's silos draw in a round."""
        drawn = {}
        for name, plan in self.plans.items():
            sampler, stream = PoissonSampler(plan.q), Seeded(SEED).child("silo", name, "round", number)
            drawn[name] = [sampler.draw(stream.child("step", step, "draw")) for step in range(self.steps)]
        return drawn

    @property
    def steps(self) -> int:
        """τ, as it is timed."""
        return self.public.schedule.local_steps


def load() -> dict[str, Records]:
    try:
        silos = MNIST.load(seed=SEED).silos
    except (InputError, OSError) as error:
        print(f"random images instead of MNIST: {error}")
        generator = torch.Generator().manual_seed(SEED)
        images = torch.rand(SILOS, RECORDS, 1, 28, 28, generator=generator)
        labels = torch.randint(10, (SILOS, RECORDS), generator=generator)
        return {f"silo{index}": Records.of(images[index], labels[index]) for index in range(SILOS)}
    return {
        name: Records.of(torch.from_numpy(silo.train.features.astype(np.float32)), torch.from_numpy(silo.train.labels))
        for name, silo in silos.items()
    }


def prepare(steps: int) -> Setting:
    """Plan as the paper does, with τ = 50; then shorten the rounds and keep the probabilities."""
    defaults, records = MNIST.schedule, load()
    schedule = Schedule(defaults.rounds, defaults.local_steps, participation=defaults.participation)
    sigma = calibrate_noise(schedule, epsilon=10.0, delta=defaults.delta, accountant="rdp")
    budgets = {name: ThreeLevels().sample(len(held), index) for index, (name, held) in enumerate(records.items())}
    public = PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=defaults.delta,
        clip_norm=1.0,
        normaliser=442.0,
        weights=1.0,
        recipe=Recipe(learning_rate=0.1, micro_batch=1024),
    )
    short = replace(public, schedule=replace(schedule, local_steps=steps))
    plans = {}
    for name, epsilon in budgets.items():
        plan = public.assign(BudgetTable([f"{name}-{row}" for row in range(epsilon.size)], epsilon))
        plans[name] = replace(plan, public=short)
    return Setting(records, plans, short)


# The same round, written plainly


def trainer(setting: Setting, model: nn.Module, step: Callable[[Tensor, Tensor], None]) -> Train:
    """Local training with some step on batches of images and labels."""

    def train(silo: str, values: NDArray[np.float32], draws: Draws) -> NDArray[np.float32]:
        start, records = torch.from_numpy(values), setting.records[silo]
        vector_to_parameters(start.clone(), model.parameters())
        for drawn in draws:
            batch = records.select(drawn)
            step(batch.inputs[0], batch.targets)
        return np.asarray((parameters_to_vector(model.parameters()).detach() - start).numpy())

    return train


def plain_trainer(setting: Setting, *, channels_last: bool) -> Train:
    model = MNIST.model(seed=SEED)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(model.parameters(), lr=setting.public.recipe.learning_rate)

    def step(images: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad()
        output = model(images.to(memory_format=layout))
        MNIST.loss(output, labels).sum().div(setting.public.normaliser).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return trainer(setting, model, step)


def opacus_trainer(setting: Setting) -> Train:
    from opacus import GradSampleModule  # type: ignore[import-untyped]
    from opacus.optimizers import DPOptimizer  # type: ignore[import-untyped]

    warnings.filterwarnings("ignore", "Full backward hook is firing")
    public = setting.public
    model = GradSampleModule(MNIST.model(seed=SEED), loss_reduction="sum")
    plain = torch.optim.SGD(model.parameters(), lr=public.recipe.learning_rate)
    optimiser = DPOptimizer(
        plain,
        noise_multiplier=public.noise_multiplier,
        max_grad_norm=public.clip_norm,
        expected_batch_size=int(public.normaliser),
    )

    def step(images: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad()
        MNIST.loss(model(images), labels).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return trainer(setting, model, step)


class ManyThreads:
    """A pool of this process, with as many threads as the caller has set."""

    def __init__(self, train: Train) -> None:
        self._train = train

    def map(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run the jobs in order."""
        return [self._train(*each) for each in arguments]

    def close(self) -> None:
        """Nothing to stop."""


def processor_seconds() -> float:
    """Of this process and its workers, so far."""
    ticks = 0
    for worker in multiprocessing.active_children():
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Clock:
    """Wall-clock and processor seconds of every round of one way to train."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        """Without the first round, in which everything is still cold."""
        return statistics.median(self.wall[1:]), statistics.median(self.processor[1:])


class Rounds:
    """Whole rounds of one way to train, silos and mean: in worker processes, or with so many threads in this one."""

    def __init__(self, train: Train, *, threads: int | None = None, most_steps: int | None = None) -> None:
        self._pool = make_pool({"train": train}, WORKERS) if threads is None else ManyThreads(train)
        self._threads = threads or 1
        self._most_steps = most_steps
        self.clock = Clock()

    def __call__(self, values: NDArray[np.float32], draws: dict[str, Draws]) -> None:
        """Time one round."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        jobs = [(name, values, drawn[: self._most_steps]) for name, drawn in draws.items()]
        share = len(jobs[0][2]) / len(next(iter(draws.values())))
        began, used = time.perf_counter(), processor_seconds()
        changes = self._pool.map("train", jobs)
        self.values = values + np.mean(changes, axis=0)
        self.clock.wall.append((time.perf_counter() - began) / share)
        self.clock.processor.append((processor_seconds() - used) / share)
        torch.set_num_threads(before)

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()


def faster_layout(setting: Setting) -> bool:
    """Whether channels-last is faster for plain training, by ten steps of each."""
    values = parameters_to_vector(MNIST.model(seed=SEED).parameters()).detach().numpy()
    name, draws = next(iter(setting.draws(1).items()))
    batches, seconds = (draws * 10)[:10], {}
    with one_thread():
        for channels_last in (True, False):
            train = plain_trainer(setting, channels_last=channels_last)
            train(name, values, batches[:2])
            began = time.perf_counter()
            train(name, values, batches)
            seconds[channels_last] = time.perf_counter() - began
    return seconds[True] < seconds[False]


def measure(setting: Setting, rounds: int) -> tuple[dict[str, Clock], float]:
    """The clocks of all ways to train, after so many rounds and a cold one; and the seconds of rpdp's set-up."""
    channels_last = faster_layout(setting)
    print(f"plain training: {'channels-last' if channels_last else 'channels-first'} is faster and is taken")
    ways = {
        "plain": Rounds(plain_trainer(setting, channels_last=channels_last)),
        "opacus, two processes": Rounds(opacus_trainer(setting)),
        "opacus, one process": Rounds(opacus_trainer(setting), threads=torch.get_num_threads(), most_steps=FEW),
    }
    values = parameters_to_vector(MNIST.model(seed=SEED).parameters()).detach().numpy()
    ours = Clock()
    began, set_up, used = time.perf_counter(), 0.0, 0.0

    def on_round(log: RoundLog) -> None:
        nonlocal set_up, used
        set_up = set_up or time.perf_counter() - began - log.seconds
        assert len(log.joined) == len(setting.plans)
        ours.wall.append(log.seconds)
        ours.processor.append(processor_seconds() - used)
        draws = setting.draws(log.round)
        for way in ways.values():
            way(values, draws)
        used = processor_seconds()
        if log.round > rounds:
            raise EnoughError

    try:
        simulate(
            MNIST.model(seed=SEED), MNIST.loss, setting.silos(), setting.public, seed=SEED, workers=WORKERS,
            on_round=on_round,
        )  # fmt: skip
    except EnoughError:
        pass
    finally:
        for way in ways.values():
            way.close()
    return {"rpdp": ours, **{name: way.clock for name, way in ways.items()}}, set_up


ROUNDS = """
import round
setting = round.prepare({steps})
ready()
round.simulate(
    round.MNIST.model(seed=0), round.MNIST.loss, setting.silos(), setting.public, seed=0, workers=round.WORKERS,
    on_round=lambda log: ready(),
)
"""
"""The first piece of work has admission and forking in it; the harness does not time it."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--against", type=Path, help="another source tree")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    options, others = parser.parse_known_args(arguments)
    bench = Benchmark("A federated MNIST round against Opacus and against no privacy", others)
    if options.against is not None:
        code = ROUNDS.format(steps=options.steps or 5)
        here, there = (work_in(tree, code) for tree in (HERE, options.against.resolve(strict=True)))
        bench.compare("round_against_other", here, there, goal=1.1, repeats=options.rounds)
        bench.finish()
        return
    setting = prepare(options.steps or (3 if bench.quick else MNIST.schedule.local_steps))
    clocks, set_up = measure(setting, options.rounds)
    wall = {name: clock.medians()[0] for name, clock in clocks.items()}
    processor = {name: clock.medians()[1] for name, clock in clocks.items()}
    opacus = min((name for name in wall if name.startswith("opacus")), key=wall.__getitem__)
    work = f"{len(setting.plans)} silos × {setting.steps} steps × {setting.expected_batch:.0f} records"
    for name, rival, goal in (("opacus", opacus, 1 / 3), ("plain", "plain", 1.6)):
        context = f"{wall['rpdp']:.1f} s against {wall[rival]:.1f} s, {rival}; {work}"
        bench.record(f"round_against_{name}", wall["rpdp"] / wall[rival], goal=goal, context=context)
        context = f"{processor['rpdp']:.1f} s against {processor[rival]:.1f} s of processor time"
        bench.record(f"round_against_{name}_processor", processor["rpdp"] / processor[rival], context=context)
    for name in clocks:
        print(f"{wall[name]:8.2f} s  {name} ({processor[name]:.2f} s of processor time)")
    bench.record("round_against_opacus_one_process", wall["rpdp"] / wall["opacus, one process"])
    load = os.getloadavg()[0]
    print(f"admission and forking, once per run and not in the ratios: {set_up:.2f} s; load average now {load:.1f}")
    bench.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
