"""Plan one run for three silos whose people are strict in three different ways. Needs no data.

Public settings come first, from declarations alone: the schedule, a policy ("nobody pays more than ε = 10"), a nominal
size. Then each silo, by itself, turns its own budgets into sampling probabilities. Writes a table and a figure.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from rpdp import BudgetTable, PublicPlan, Schedule, calibrate_noise
from rpdp.budgets import PAPER
from rpdp.cli.output import console
from rpdp.cli.plan import print_groups
from rpdp.report import plan_figure, write_figure

RECORDS = 4_000
POLICY_EPSILON, DELTA = 10.0, 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/example"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    schedule = Schedule(rounds=15, local_steps=50, participations=8)
    sigma = calibrate_noise(schedule, epsilon=POLICY_EPSILON, delta=DELTA)
    public = PublicPlan(schedule, noise_multiplier=sigma, delta=DELTA, clip_norm=1.0, normaliser=400, weights=1.0)
    console.print(f"{schedule.describe()} · σ = {sigma:.4g} for at most ε = {POLICY_EPSILON:g} at δ = {DELTA:g}")

    plans = {}
    for seed, (name, distribution) in enumerate(PAPER.items()):
        ids = [f"{name}-{number:04d}" for number in range(1, RECORDS + 1)]
        plans[name] = public.assign(BudgetTable(ids, distribution.sample(RECORDS, seed)))
        console.print(f"\n{name}: {RECORDS:,} records, expected batch {plans[name].expected_batch:.0f}")
        print_groups(plans[name])

    with (out / "groups.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [{"silo": name, **vars(group)} for name, plan in plans.items() for group in plan.groups()]
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    public.write(out / "public-plan.json")
    write_figure(plan_figure(plans), out / "plan.html")
    console.print(f"\n{plans['ThreeLevels'].explain('ThreeLevels-0001')}")
    for what, name in {"table": "groups.csv", "figure": "plan.html", "public plan": "public-plan.json"}.items():
        console.print(f"{what}: {out / name}")


if __name__ == "__main__":
    main()
