"""What a durable ledger costs: its growth from 10⁴ to 10⁷ records, and a federated round with and without it.

Goals at ten million records with Rényi accounts: file below 500 MB, create within 5 minutes, open within 2 s, reserve
(with the look at what is left) within 25 s, a charge within 5 ms at the median and at the same price whatever the
number of records, `explain` within 1 s. Each is shown as its share of the goal. And a silo's MNIST round, 50 local
steps, with a ledger against the account in memory: below 1.05. Everything is on the disk of `--directory`; a directory
in memory would flatter the ledger.

    python benchmarks/ledger.py [--quick] [--json] [--directory DIR] [--most 1e7] [--only growth|round]

Budgets are uniform between 0.1 and 5, so that the plan has about a thousand sampling classes; those of the round are
ThreeLevels, as in the paper.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.budgets import ThreeLevels
from rpdp.ledger import Ledger
from rpdp.planning import assign_allowed
from rpdp.sampling import Seeded

if TYPE_CHECKING:  # mypy sees a package, `python benchmarks/name.py` sees a neighbour
    from collections.abc import Callable

    from benchmarks._harness import Benchmark
    from rpdp.federation import Silo
    from rpdp.ledger import Account
    from rpdp.planning import SiloPlan
else:
    from _harness import Benchmark

SMALLEST = 10_000
LIFETIME_DELTA = 1e-2
CHARGES = 61
GOALS = {"create": 300.0, "open": 2.0, "reserve": 25.0, "charge": 0.005, "explain": 1.0}
LARGEST_FILE = 0.5e9


def public_plan(rounds: int, local_steps: int = 50) -> PublicPlan:
    return PublicPlan(
        Schedule(rounds, local_steps, participation=0.5),
        noise_multiplier=10.748,
        delta=1e-4,
        clip_norm=1.0,
        normaliser=442.0,
        weights=1.0,
    )


def table_of(records: int) -> BudgetTable:
    numbers = pa.chunked_array([pa.array(np.arange(records))]).cast(pa.string())
    ids = pc.binary_join_element_wise("record", numbers, "-")
    return BudgetTable(ids, 0.1 + 4.9 * Seeded(1).uniforms(records))


@dataclass
class Measured:
    """A ledger of some size and what its parts took, in seconds."""

    ledger: Ledger
    seconds: dict[str, float]
    size: int
    round: int = 0

    def charge(self) -> None:
        """The next round."""
        self.round += 1
        self.ledger.charge("run", self.round, lambda: True)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def measure(directory: Path, records: int) -> Measured:
    path = directory / f"{records}.db"
    table, seconds = table_of(records), {}

    def create() -> None:
        Ledger.create(path, table, kind="production", lifetime_delta=LIFETIME_DELTA).close()

    _, seconds["create"] = timed(create)
    ledger, seconds["open"] = timed(lambda: Ledger.open(path))
    left, seconds["left"] = timed(lambda: ledger.left(table, LIFETIME_DELTA))
    # The prices of fifteen rounds; many more may be charged here.
    plan = assign_allowed(public_plan(15), table.ids, replace(left, amount=left.amount / 2, common_delta=None))
    plan = replace(plan, public=public_plan(100_000))
    _, seconds["booking"] = timed(lambda: ledger.reserve("run", plan, None))
    seconds["reserve"] = seconds["left"] + seconds["booking"]
    made = Measured(ledger, seconds, 0)
    times = [timed(made.charge)[1] for _ in range(CHARGES)]
    seconds["charge"] = statistics.median(times)
    ledger.close()
    made.size = sum(file.stat().st_size for file in directory.glob(f"{records}.db*") if file.is_file())
    made.ledger, seconds["open again"] = timed(lambda: Ledger.open(path))
    _, seconds["explain"] = timed(lambda: made.ledger.explain(f"record-{records // 2}"))
    made.ledger.left(table, LIFETIME_DELTA)
    seconds["switched_off"] = timed(lambda: [made.ledger.switched_off() for _ in range(1000)])[1] / 1000
    return made


def growth(bench: Benchmark, directory: Path, most: int) -> None:
    small = measure(directory, SMALLEST)
    sizes = [size for size in (10**5, 10**6, 10**7) if size <= most]
    print("records   " + "".join(f"{name:>14s}" for name in small.seconds) + f"{'MB':>9s}{'bytes each':>12s}")
    _print_row(SMALLEST, small)
    for records in sizes:
        large = measure(directory, records)
        _print_row(records, large)
        name = f"charge_growth_1e4_to_1e{len(str(records)) - 1}"
        bench.compare(name, large.charge, small.charge, goal=1.5, repeats=151)
        if records == sizes[-1]:
            _against_goals(bench, records, large)
        large.ledger.close()
    small.ledger.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak memory of this process, tables and plans included: {peak:.2f} GB")


def _print_row(records: int, measured: Measured) -> None:
    cells = "".join(f"{seconds:14.4f}" for seconds in measured.seconds.values())
    print(f"{records:<10,d}{cells}{measured.size / 1e6:9.1f}{measured.size / records:12.1f}")


def _against_goals(bench: Benchmark, records: int, measured: Measured) -> None:
    size = f"1e{len(str(records)) - 1}"
    for name, goal in GOALS.items():
        taken = measured.seconds[name]
        bench.record(f"{name}_{size}_share_of_goal", taken / goal, goal=1.0, context=f"{taken:.3g} s of {goal:g} s")
    context = f"{measured.size / 1e9:.3f} GB of {LARGEST_FILE / 1e9:g} GB"
    bench.record(f"file_{size}_share_of_goal", measured.size / LARGEST_FILE, goal=1.0, context=context)


# A round


class Rounds:
    """A silo that answers one round after the other."""

    def __init__(self, plan: SiloPlan, records: Any, account: Account) -> None:
        from rpdp.federation import Policy, Silo
        from rpdp.tasks.registry import task
        from rpdp.training import FlatModel

        mnist = task("mnist")
        model = mnist.model(seed=0)
        table = BudgetTable(plan.ids, plan.budget)
        self._public = plan.public
        self._silo: Silo = Silo(
            "a",
            records,
            table,
            policy=Policy.of(plan.public),
            account=account,
            planner=lambda public, ids, allowed: plan,
        )
        self._silo.admit("run", plan.public, model, mnist.loss, Seeded(0))
        self._values = FlatModel(model).values.data.clone()
        self.parameters = self._values.numel()
        self.seconds: list[float] = []
        self._round = 0

    def __call__(self) -> None:
        """Coin, charge, training, outbox."""
        from rpdp.federation import Announcement

        self._round += 1
        began = time.perf_counter()
        update = self._silo.answer(Announcement("run", self._public.fingerprint, self._round, self._values))
        assert update is not None
        self.seconds.append(time.perf_counter() - began)


class Alone:
    """All that a round asks of its ledger, and nothing else: what the ratio of whole rounds hides in noise."""

    def __init__(self, ledger: Ledger, steps: int, parameters: int) -> None:
        self._ledger, self._steps, self._payload = ledger, steps, bytes(4 * parameters)
        self._round = 0

    def __call__(self) -> None:
        """The next round."""
        self._round += 1
        self._ledger.charge("alone", self._round, lambda: True)
        for _ in range(self._steps):
            self._ledger.switched_off()
        self._ledger.store("alone", self._round, self._payload)


def one_round(bench: Benchmark, directory: Path) -> None:
    import torch

    from rpdp.ledger import MemoryAccount
    from rpdp.training import Records

    records = _mnist_silo()
    table = BudgetTable(table_of(len(records)).ids, ThreeLevels().sample(len(records), 0))
    steps = 5 if bench.quick else 50
    paper = public_plan(15).assign(table)
    paper = replace(paper, cost=paper.cost / 4)  # so that two runs fit; prices play no part here
    always = replace(paper.public, schedule=Schedule(10_000, steps, participation=1.0))
    plan = replace(paper, public=always)
    assert isinstance(records, Records)
    torch.set_num_threads(1)
    with Ledger.create(directory / "round.db", table, kind="simulation", lifetime_delta=LIFETIME_DELTA) as ledger:
        durable, in_memory = Rounds(plan, records, ledger), Rounds(plan, records, MemoryAccount(len(records)))
        print(f"a round: {steps} local steps of {plan.expected_batch:.0f} records, one silo, one thread")
        bench.compare("mnist_round_with_ledger", durable, in_memory, goal=None if bench.quick else 1.05, repeats=15)
        ledger.reserve("alone", plan, None)
        alone, round_seconds = Alone(ledger, steps, durable.parameters), statistics.median(durable.seconds)
        taken = statistics.median(timed(alone)[1] for _ in range(15))
        context = f"{1e3 * taken:.1f} ms of {round_seconds:.2f} s: charge, {steps} questions before steps, outbox"
        bench.record("ledger_share_of_mnist_round", taken / round_seconds, goal=0.05, context=context)


def _mnist_silo() -> Any:
    import torch

    from rpdp.errors import InputError
    from rpdp.tasks.registry import task
    from rpdp.training import Records

    try:
        silo = next(iter(task("mnist").load(seed=0).silos.values())).train
    except (InputError, OSError) as error:
        print(f"random images instead of MNIST: {error}")
        return Records.of(torch.rand(3960, 1, 28, 28), torch.randint(10, (3960,)))
    return Records.of(torch.from_numpy(silo.features.astype(np.float32)), torch.from_numpy(silo.labels))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--most", type=float)
    parser.add_argument("--only", choices=["growth", "round"])
    options, others = parser.parse_known_args(arguments)
    bench = Benchmark("A durable ledger: growth from 1e4 records, and its share of a federated round", others)
    most = int(options.most or (1e5 if bench.quick else 1e7))
    with tempfile.TemporaryDirectory(dir=options.directory) as made:
        if options.only != "growth":
            one_round(bench, Path(made))
        if options.only != "round":
            growth(bench, Path(made), most)
    bench.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
