"""Planning at scale: a million budgets against single evaluations, and certified against a search per record.

The peer is `dp_accounting`: its one-step PLD and self-composition (with the mixture over participation in between,
which it lacks) on the loss grid that rpdp chose for the same sampling probability, and its `RdpAccountant` in a
per-record search.

    python benchmarks/planning.py --against ../before [--quick] [--json]

times planning alone, in this source tree and in another one.
"""

from __future__ import annotations

import argparse
import logging
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from rpdp import BudgetTable, PrivacyCurve, PublicPlan, Schedule
from rpdp.accounting import pld
from rpdp.accounting.divergence import DivergenceCurve
from rpdp.accounting.renyi_filter import ORDERS, lifetime_divergence, order_numbers
from rpdp.planning import MeasureSpec, Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks._against import HERE, work_in
    from benchmarks._harness import Benchmark
else:
    from _against import HERE, work_in
    from _harness import Benchmark

SIGMA, DELTA = 10.748, 1e-4
MNIST = Schedule(15, 50, participation=0.5)
MEMORY_RECORDS = 10_000_000
TYPICAL_Q = 0.16
"""The probability of a record with ε = 1, the geometric middle of the budgets planned here."""


def budgets(count: int) -> NDArray[np.float64]:
    """So many different budgets, spread evenly over the logarithm of ε from 0.1 to 10."""
    return np.exp(np.random.default_rng(7).uniform(np.log(0.1), np.log(10.0), count))


def plan(count: int, schedule: Schedule = MNIST, accountant: str = "pld") -> None:
    curve = PrivacyCurve(schedule, noise_multiplier=SIGMA, delta=DELTA, accountant=accountant)  # type: ignore[arg-type]
    curve.certify(budgets(count))


def plan_request(count: int) -> None:
    """Weights for so many budgets, at a noise at which some records saturate and some do not."""
    request = Request("representative", (MeasureSpec("count", 1),))
    public = PublicPlan.of_request(request, noise_multiplier=4.0, delta=DELTA, purpose="statistics")
    public.curve.certify(budgets(count))


def divergences_of(count: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Orders, and a tenth of the lifetime divergences, of so many different budgets in Rényi accounts."""
    epsilon, delta = budgets(count), np.full(count, DELTA)
    orders = order_numbers(epsilon, delta)
    return orders, lifetime_divergence(epsilon, delta, orders) / 10.0


def plan_divergences(orders: NDArray[np.uint8], divergences: NDArray[np.float64], *, whole: bool) -> None:
    """Their q. With `whole`, tables of all orders are computed first, as where admission has a public time."""
    for number in range(1, ORDERS.size):
        curve = DivergenceCurve(MNIST, noise_multiplier=SIGMA, order=float(ORDERS[number]))
        here = orders == number
        if whole:
            curve.tabulate()
        if here.any():
            curve.certify(divergences[here])


def single_evaluation() -> float:
    """ε of one q as dp_accounting computes it, with the mixture added, on rpdp's grid for that q."""
    curve = PrivacyCurve(MNIST, noise_multiplier=SIGMA, delta=DELTA)
    q = np.array([TYPICAL_Q])
    guide = curve._renyi(q)
    grid = pld._choose_grid(q, curve._run, guide.bound, guide.theta, pld.ACCURACY, np.zeros(1), DELTA * 1e-9)
    step = privacy_loss_distribution.from_gaussian_mechanism(
        SIGMA, sampling_prob=TYPICAL_Q, value_discretization_interval=float(grid.step_spacing[0])
    )
    one_round = step.self_compose(MNIST.local_steps)
    assert MNIST.participation is not None
    remove = _sometimes(one_round._pmf_remove, MNIST.participation)
    add = _sometimes(one_round._pmf_add, MNIST.participation)
    run = privacy_loss_distribution.PrivacyLossDistribution(remove, add).self_compose(MNIST.rounds)
    return float(run.get_epsilon_for_delta(DELTA))


def _sometimes(pmf: pld_pmf.PLDPmf, rate: float) -> pld_pmf.PLDPmf:
    """The mixture (1 − λ) {loss 0} + λ pmf."""
    dense = pmf.to_dense_pmf()
    masses = rate * dense._probs
    masses[-dense._lower_loss] += 1.0 - rate
    return pld_pmf.DensePLDPmf(
        dense._discretization, dense._lower_loss, masses, rate * dense._infinity_mass, dense._pessimistic_estimate
    )


def search_per_record(targets: NDArray[np.float64], steps: int) -> None:
    """Bisection over q for each budget through dp_accounting's RdpAccountant, to the same 0.5 % of ε."""
    for target in targets:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            accountant = RdpAccountant()
            event = dp_accounting.PoissonSampledDpEvent(middle, dp_accounting.GaussianDpEvent(SIGMA))
            cost = accountant.compose(event, steps).get_epsilon(DELTA)
            if cost <= target:
                low = middle
                if target - cost <= 0.005 * target:
                    break
            else:
                high = middle


def peak_memory() -> None:
    """Run in a process of its own: plan ten million records, print the peak in bytes."""
    import pyarrow as pa

    count = MEMORY_RECORDS
    ids = pa.chunked_array(
        [pa.array([f"r-{n:08d}" for n in range(start, start + count // 20)]) for start in range(0, count, count // 20)]
    )
    public = PublicPlan(MNIST, noise_multiplier=SIGMA, delta=DELTA, clip_norm=1.0, normaliser=64, weights=1.0)
    start = time.perf_counter()
    silo = public.assign(BudgetTable(ids, budgets(count)))
    seconds = time.perf_counter() - start
    assert (silo.cost <= silo.budget).all()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, seconds)


PLANNING = """
import planning
budgets = planning.budgets({count})
while True:
    ready()
    planning.PrivacyCurve(planning.MNIST, noise_multiplier=planning.SIGMA, delta=planning.DELTA).certify(budgets)
"""


def against(other: Path, bench: Benchmark) -> None:
    """Planning in this source tree against another one."""
    for count in (1_000_000, 1_000):
        here, there = (work_in(tree, PLANNING.format(count=count)) for tree in (HERE, other))
        bench.compare(f"planning_{count}_against_other", here, there, goal=1.2, repeats=9)
    bench.finish()


def main() -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)  # the peer warns of every order that does not converge
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--against", type=Path, help="another source tree")
    options, others = parser.parse_known_args()
    bench = Benchmark("Planning: a million budgets, and certified against a search per record", others)
    if options.against is not None:
        against(options.against.resolve(strict=True), bench)
        return
    repeats = 3 if bench.quick else 7
    million = lambda: plan(1_000_000)  # noqa: E731
    bench.compare("million_vs_thousand", million, lambda: plan(1_000), goal=2.0, repeats=repeats)
    request = lambda: plan_request(1_000_000)  # noqa: E731
    bench.compare("request_vs_training", request, million, goal=1.0, repeats=repeats)
    many, few = divergences_of(1_000_000), divergences_of(1_000)
    for name, tables in (("million_vs_thousand_divergences", True), ("without_whole_tables", False)):
        on_many, on_few = (partial(plan_divergences, *some, whole=tables) for some in (many, few))
        bench.compare(name, on_many, on_few, goal=2.0 if tables else None, repeats=repeats)
    print(f"one evaluation by the peer: ε({TYPICAL_Q}) = {single_evaluation():.5f}, by rpdp: {rpdp_epsilon():.5f}")
    bench.compare("million_vs_single_evaluations", million, single_evaluation, goal=30.0, repeats=repeats)
    whole = Schedule(15, 50, participation=1.0)
    some = 4 if bench.quick else 12
    start = time.perf_counter()
    search_per_record(budgets(some), whole.steps)
    searched = (time.perf_counter() - start) / some * 1_000
    start = time.perf_counter()
    plan(1_000, whole, "rdp")
    certified = time.perf_counter() - start
    context = f"search {searched:.0f} s for 1,000 records (from {some}), certified {certified:.3f} s; goal at least 100"
    bench.record("search_vs_certified", searched / certified, context=context)
    printed = subprocess.run([sys.executable, __file__, "--peak-memory"], check=True, capture_output=True, text=True)
    peak, seconds = map(float, printed.stdout.split())
    context = (
        f"{peak / 1e6:.0f} MB at the peak for {MEMORY_RECORDS:,} records, planned in {seconds:.1f} s; against 1 GB"
    )
    bench.record("memory_of_ten_million", peak / 1e9, goal=1.0, context=context)
    bench.finish()


def rpdp_epsilon() -> float:
    return PrivacyCurve(MNIST, noise_multiplier=SIGMA, delta=DELTA).epsilon(TYPICAL_Q)


if __name__ == "__main__":
    if "--peak-memory" in sys.argv:
        peak_memory()
    else:
        main()
