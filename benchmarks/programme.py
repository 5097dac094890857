"""Accuracy over a programme of ten yearly runs on Heart-Disease, under lifetime budgets: Rényi accounts against sums.

    RPDP_DATA=… python benchmarks/programme.py [--quick] [--json] [--seeds 5] [--years 10]

Four hospitals train a new model each year. Everybody has a lifetime budget (ThreeLevels, δ = 1e-3), and each run may
take a tenth of it (`max_share_per_run`), so ten runs fit. The two kinds of account differ in nothing but what a tenth
buys. For each of them noise and learning rate were chosen for accuracy on other splits (`--tune`), which no promise
covers. Accuracy is that of all silos' test records, after every run; a programme's is the mean over its years.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rpdp_lab.models.model_scores import records_of
from rpdp_lab.tasks import heart_disease

from rpdp import BudgetTable, Policy, PublicPlan, Recipe, Schedule, Silo, calibrate_noise, simulate
from rpdp.budgets import ThreeLevels
from rpdp.errors import InputError
from rpdp.federation import Evaluation
from rpdp.ledger import MemoryAccount
from rpdp.planning import Allowance, assign_allowed

if TYPE_CHECKING:
    from benchmarks._harness import Benchmark
    from rpdp.budgets import AccountKind
else:
    from _harness import Benchmark

SHARE = 0.1
LIFETIME_DELTA = 1e-3
DECLARED = {"cleveland": 199, "hungarian": 172, "switzerland": 30, "va": 85}
"""Declared sizes of the silos: public, like the distribution of budgets."""

TUNING_SEED = 1000
KINDS: tuple[AccountKind, ...] = ("sums", "renyi")


@dataclass(frozen=True)
class Choice:
    """What one run alone would cost at q = 1 (that sets the noise), and the learning rate."""

    epsilon: float
    learning_rate: float


CHOSEN: dict[str, Choice] = {"sums": Choice(4.0, 0.01), "renyi": Choice(2.0, 0.03)}
"""From `--tune`, on three other splits. There, Rényi accounts do as well with half the noise (0.773 against 0.770)."""

GRID = [
    Choice(epsilon, rate) for epsilon, rate in itertools.product((0.5, 1.0, 2.0, 4.0, 8.0), (0.003, 0.01, 0.03, 0.1))
]


def public_plan(account: AccountKind, choice: Choice) -> PublicPlan:
    """The plan of every year. The normaliser comes from the declared distribution of budgets, not from the real one."""
    schedule = Schedule(rounds=15, local_steps=10, participation=1.0)
    settings: dict[str, Any] = {
        "noise_multiplier": calibrate_noise(schedule, epsilon=choice.epsilon, delta=SHARE * LIFETIME_DELTA),
        "delta": SHARE * LIFETIME_DELTA,
        "clip_norm": 1.0,
        "weights": {name: float(size) for name, size in DECLARED.items()},
        "recipe": Recipe(learning_rate=choice.learning_rate),
    }
    declared = BudgetTable([f"d{number}" for number in range(1000)], ThreeLevels().sample(1000, 0))
    drawn = MemoryAccount(1000, account=account).left(declared, LIFETIME_DELTA, Allowance(share=SHARE))
    mean = float(assign_allowed(PublicPlan(schedule, normaliser=1.0, **settings), declared.ids, drawn).q.mean())
    return PublicPlan(schedule, normaliser=max(1.0, mean * sum(DECLARED.values()) / len(DECLARED)), **settings)


def programme(account: AccountKind, public: PublicPlan, seed: int, years: int) -> list[float]:
    """The accuracy of every year. The silos' accounts last for the whole programme."""
    task = heart_disease()
    data = task.load(seed=seed)
    policy = Policy(
        max_rounds=15,
        max_local_steps=10,
        max_participation=1.0,
        max_clip_norm=1.0,
        min_noise_multiplier=0.1,
        lifetime_delta=LIFETIME_DELTA,
        max_runs=years,
        max_share_per_run=SHARE,
    )
    silos = []
    for place, (name, part) in enumerate(sorted(data.silos.items())):
        budgets = ThreeLevels().sample(len(part.train.labels), 100 * seed + place)
        table = BudgetTable(part.train.record_ids.tolist(), budgets)
        memory = MemoryAccount(len(table), account=account)
        ids = part.train.record_ids.tolist()
        silos.append(Silo(name, records_of(part.train), table, policy=policy, record_ids=ids, account=memory))
    evaluation = Evaluation({name: records_of(part.test) for name, part in data.silos.items()}, metrics=["accuracy"])
    found = []
    for year in range(years):
        model = task.model(seed=year)
        result = simulate(
            model, task.loss, silos, public, seed=1000 * seed + year, evaluation=evaluation, workers=1, on_round=_silent
        )
        assert result.score is not None
        found.append(float(result.score.accuracy))
    return found


def _silent(log: object) -> None:
    """No bar."""


def tune() -> None:
    """Print the accuracy of every setting on other splits."""
    for account in KINDS:
        scores = {}
        for choice in GRID:
            public = public_plan(account, choice)
            runs = [programme(account, public, TUNING_SEED + number, 2) for number in range(3)]
            scores[choice] = float(np.mean(runs))
            print(f"{account:6s} ε(1) = {choice.epsilon:<4g} rate {choice.learning_rate:<5g} {scores[choice]:.4f}")
        print(f"{account}: {max(scores, key=lambda one: scores[one])}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--tune", action="store_true")
    options, others = parser.parse_known_args(arguments)
    if options.tune:
        tune()
        return
    try:
        heart_disease().load(seed=0)
    except (InputError, OSError) as error:
        print(f"skipped, because the data are not here: {error}")
        return
    bench = Benchmark("Ten yearly runs on Heart-Disease under lifetime budgets", others)
    seeds, years = (2, 3) if bench.quick else (options.seeds, options.years)
    began = time.perf_counter()
    scores = {
        account: np.array(
            [programme(account, public_plan(account, CHOSEN[account]), seed, years) for seed in range(seeds)]
        )
        for account in KINDS
    }
    for account, values in scores.items():
        means = values.mean(axis=1)
        print(
            f"{account:6s} mean over {years} years and {seeds} seeds {means.mean():.4f}, standard deviation over seeds "
            f"{means.std(ddof=1):.4f}, over single runs {values.std(ddof=1):.4f}; by year "
            + " ".join(f"{value:.3f}" for value in values.mean(axis=0))
        )
    difference = (scores["renyi"] - scores["sums"]).mean(axis=1)
    context = f"{difference.mean():+.4f} ± {difference.std(ddof=1):.4f} by seed; {time.perf_counter() - began:.0f} s"
    bench.record("accuracy_renyi_over_sums", scores["renyi"].mean() / scores["sums"].mean(), context=context)
    bench.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
