"""`python -m rpdp_lab.tuning_table STUDY`: `rpdp tune` against a declared recipe at the same total budget.

For every seed the candidates share one budget of each training record: `rpdp tune` trains all of them and keeps the one
with the best private evaluation; a declared recipe is one of them, trained alone on the whole budget. Both are measured
on the same test records, on which `rpdp tune` has chosen, too: that flatters it. Simulations of the real path.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.spread import Spread
from rpdp.studies.building import build
from rpdp.studies.execution import execute
from rpdp.studies.private_tuning import scores_of, tune_privately
from rpdp.studies.run_directory import read_summary
from rpdp.studies.study_file import StudyFile
from rpdp.studies.tuning_plan import METHOD, plan_tuning, trials_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class SeedResult:
    """One seed. Values are those of the first metric on all test records.

    Attributes:
        seed: The seed.
        chosen: The candidate that private evaluation chose.
        trials: Of every candidate, trained on its part of the budget.
        alone: Of every candidate, trained alone on the whole budget.
    """

    seed: int
    chosen: str
    trials: dict[str, float]
    alone: dict[str, float]

    @property
    def tuned(self) -> float:
        """What `rpdp tune` ends with."""
        return self.trials[self.chosen]


def study_with(
    path: Path, rates: Sequence[float], metric: str, records: int, *, share: float, estimator: str
) -> StudyFile:
    """The study with candidates by their learning rates, and a private evaluation that is never refused as useless."""
    spec = StudyFile.read(path)
    values: dict[str, Any] = tomllib.loads(spec.text)
    values["tuning"] = {"candidates": [{"name": f"rate-{rate:g}", "learning_rate": rate} for rate in rates]}
    own = {"metrics": [metric], "share": share, "records": records, "widest": 1.0, "estimator": estimator}
    values["evaluation"] = own
    values["privacy"]["share"] = 1.0
    values["training"].pop("tuned", None)
    return spec.with_values(values)


def measured(spec: StudyFile, seed: int) -> SeedResult:
    """Tune once, and train every candidate alone."""
    with tempfile.TemporaryDirectory() as home:
        tuned = tune_privately(spec, seed, Path(home) / "tuned", even_if_noise=True, workers=1)
        names = list(scores_of(tuned.facts))
        trials = {name: _value(read_summary(Path(home) / "tuned" / "trials" / name)) for name in names}
    alone = {}
    for trial in trials_of(spec, is_real=False):
        values = tomllib.loads(trial.spec.text)
        values["privacy"]["share"] = 1.0
        values["evaluation"] = {"metrics": values["evaluation"]["metrics"]}
        whole = trial.spec.with_values(values)
        score = execute(build(whole, whole.settings(METHOD), seed), workers=1).score
        assert score is not None
        found = next(iter(score.values.values()))
        assert found is not None
        alone[trial.name] = found
    return SeedResult(seed, tuned.facts["chosen"], trials, alone)


def _value(summary: dict[str, Any]) -> float:
    return float(next(iter(summary["metrics"].values()))["value"])


def rows_of(found: Sequence[SeedResult]) -> list[tuple[str, Spread]]:
    """The lines of the table."""
    names = list(found[0].alone)

    def spread(values: list[float]) -> Spread:
        made = Spread.of(values)
        assert made is not None
        return made

    return [
        ("`rpdp tune`", spread([one.tuned for one in found])),
        ("the same, if the choice were free of noise", spread([max(one.trials.values()) for one in found])),
        *((f"declared alone: {name}", spread([one.alone[name] for one in found])) for name in names),
        ("declared at random", spread([sum(one.alone.values()) / len(names) for one in found])),
        *((f"tune − declared {name}", spread([one.tuned - one.alone[name] for one in found])) for name in names),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the seeds, print each as a line of JSON, then the table."""
    parser = argparse.ArgumentParser(prog="python -m rpdp_lab.tuning_table", description=__doc__)
    parser.add_argument("study", type=Path, help="the study file")
    parser.add_argument("--rates", default="0.03,0.1,0.3,1.0", help="learning rates of the candidates")
    parser.add_argument("--metric", default="auc", help="the metric that decides")
    parser.add_argument("--records", type=int, required=True, help="declared number of test records of a silo")
    parser.add_argument("--share", type=float, default=1.0, help="share of test records' budgets for the evaluation")
    parser.add_argument("--estimator", default="everyone", help="everyone or representative")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=1, help="the first of them")
    given = parser.parse_args(arguments)
    rates = [float(each) for each in given.rates.split(",")]
    spec = study_with(given.study, rates, given.metric, given.records, share=given.share, estimator=given.estimator)
    for line in plan_tuning(spec, trials_of(spec, is_real=False), given.first_seed).lines():
        sys.stdout.write(f"{line}\n")
    found = []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        found.append(measured(spec, seed))
        sys.stdout.write(json.dumps(vars(found[-1])) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"\n| {given.metric}, {len(found)} seeds | mean ± deviation |\n|---|---|\n")
    for name, spread in rows_of(found):
        sys.stdout.write(f"| {name} | {spread.text(4)} |\n")


if __name__ == "__main__":
    main()
