"""Noisy sums of a silo: a histogram of 10,000 bins over a million records, against numpy's own, which protects nobody.

Goal of a release: 2 s. Planning a request is measured against planning a training run over the same budgets.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.federation import Announcement
from rpdp.federation.sums import SumsWork
from rpdp.planning import Request
from rpdp.sampling import Secure
from rpdp.statistics import Axis, Columns, ColumnSource
from rpdp.statistics.measures import HistogramMeasure

if TYPE_CHECKING:
    from benchmarks._harness import Benchmark
else:
    from _harness import Benchmark

BINS = 10_000
MOST_SECONDS = 2.0
RANGE = (0.0, 1.0)


def main() -> None:
    bench = Benchmark("Noisy sums: a histogram of 10,000 bins")
    records = 100_000 if bench.quick else 1_000_000
    random = np.random.default_rng(0)
    values, epsilon = random.uniform(size=records), random.choice([0.5, 2.0, 10.0], records)
    edges = np.linspace(*RANGE, BINS + 1)
    columns = Columns.of_arrays({"x": values}, ranges={"x": RANGE})
    measure = HistogramMeasure((Axis("x", columns.declared["x"], tuple(edges.tolist())),))
    request = Request("representative", (measure.spec,))
    public = PublicPlan.of_request(request, noise_multiplier=2.0, delta=1e-6, purpose="statistics")
    budgets = BudgetTable([str(number) for number in range(records)], epsilon)
    plan = public.assign(budgets)
    source, nobody = ColumnSource(columns), np.zeros(0, dtype=np.int64)
    work = SumsWork(source, request, np.arange(records), torch.zeros(0))
    told = Announcement("run", public.fingerprint, 1, torch.zeros(0))
    release = partial(work.run, plan, told, lambda: nobody, Secure())
    bench.compare("histogram_against_numpy", release, partial(np.histogram, values, bins=edges), repeats=9)
    began = time.perf_counter()
    release()
    seconds = time.perf_counter() - began
    context = f"{seconds:.3g} s for {records:,} records; goal {MOST_SECONDS:g} s"
    bench.record("release_against_goal", seconds / MOST_SECONDS, goal=1.0, context=context)
    trained = PublicPlan(
        Schedule(15, 50, participations=8), noise_multiplier=10.0, delta=1e-4, clip_norm=1.0, normaliser=64, weights=1.0
    )
    trained.assign(budgets)  # its tables are made once
    bench.compare(
        "planning_against_training", lambda: public.assign(budgets), lambda: trained.assign(budgets), repeats=5
    )
    bench.finish()


if __name__ == "__main__":
    main()
