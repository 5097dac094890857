"""`python -m tests.statistics.stroke_evaluation`: private evaluation of a model for stroke patients, many times.

Trains the model of `examples/ist/by-country.toml` once (a simulation, seed 1), and evaluates it privately on the test
patients of its 25 silos, again and again: budgets and noise are drawn anew. For each distribution of budgets and each
share it counts how often the 95 % interval covers the AUC on the patients that it speaks of, and how wide it is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from safetensors.torch import load_file

from rpdp.budgets.distributions import PAPER
from rpdp.planning import DECLARED_SAMPLE, REQUEST_ESTIMATORS, Request, noise_for_weight_1
from rpdp.statistics import DeclaredTest, EvaluationMeasure, ModelCells, plan_evaluation, score_metrics
from rpdp.statistics.estimate import LEVEL
from rpdp.statistics.score_counts import contribution
from rpdp.statistics.score_metrics import ScoreCounts
from rpdp.studies.study_data import load_source, make_model
from rpdp.studies.study_file import StudyFile
from rpdp.studies.training_run import train
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.budgets import AccountKind
    from rpdp.planning import RequestEstimator

    Numbers = NDArray[np.float64]

STUDY = Path(__file__).parents[2] / "examples" / "ist" / "by-country.toml"
MEASURE = EvaluationMeasure.for_metrics(["auc"], classes=2)
SHARES = (0.1, 0.3, 1.0)
USELESS = 0.45
"""An AUC that is known to ± this is not known: a study would not spend anything on it."""

_POOL = 20_000
"""So many budgets stand for a distribution."""

POSITIVES = 0.63
"""Declared: the published share of patients who were dead or dependent."""


class Patients(NamedTuple):
    """The test patients of all silos: their bins (class 0 from the highest score down) and their scores."""

    places: NDArray[np.int64]
    targets: NDArray[np.int64]
    scores: Numbers
    silos: int

    def auc(self, part: NDArray[np.bool_]) -> float:
        """Without any privacy."""
        ranks = np.empty(int(part.sum()))
        scores, targets = self.scores[part], self.targets[part]
        order = np.argsort(scores)
        ranks[order] = np.arange(1, len(order) + 1)
        positives = int(targets.sum())
        above = ranks[targets == 1].sum() - positives * (positives + 1) / 2
        return float(above / (positives * (len(targets) - positives)))

    def sums(self, weights: Numbers) -> Numbers:
        """Σ w·x over all silos, without noise."""
        counts = np.bincount(self.places, weights, 2 * MEASURE.bins).reshape(2, MEASURE.bins)
        return np.concatenate([np.convolve(each, contribution(MEASURE.bins))[: MEASURE.bins] for each in counts])


def patients() -> Patients:
    """Train the model, and run it on the test patients."""
    spec = StudyFile.read(STUDY)
    with tempfile.TemporaryDirectory() as made:
        train(spec, spec.settings("rpdp"), 1, Path(made) / "run")
        state = load_file(Path(made) / "run" / "model.safetensors")
    source, model = load_source(spec, 1), make_model(spec, 1)
    model.load_state_dict(state)
    values = FlatModel(model).values.data
    request = Request("everyone", (MEASURE.spec(),))
    places, targets, scores = [], [], []
    for held in source.silos.values():
        cells = ModelCells(held.test, model).cells(request, values, np.arange(len(held.test)))
        places.append(cells.index[:, 0])
        targets.append(held.test.targets.numpy().astype(np.int64))
        scores.append(model(held.test.inputs[0]).detach().double().numpy()[:, 0])
    return Patients(np.concatenate(places), np.concatenate(targets), np.concatenate(scores), len(places))


class Row(NamedTuple):
    """What many evaluations showed."""

    distribution: str
    share: float
    estimator: str
    expected: float
    half_width: float
    covered: float


def measured(
    found: Patients, name: str, share: float, estimator: RequestEstimator, account: AccountKind, repetitions: int
) -> Row:
    """Evaluate many times; everything that a study would declare is declared here, too."""
    law, rng = PAPER[name], np.random.default_rng(1)
    test = DeclaredTest(round(len(found.places) / found.silos), found.silos, POSITIVES)
    outlook = plan_evaluation(
        MEASURE, test, law.sample(DECLARED_SAMPLE, 0), delta=1e-5, estimator=estimator, share=share, account=account
    )
    if outlook.half_width >= USELESS:
        return Row(name, share, estimator, outlook.half_width, float("nan"), float("nan"))
    public = outlook.public
    assert public.request is not None
    deviation = public.noise_multiplier * float(np.sqrt(found.silos))
    covered, widths, needed = 0, [], noise_for_weight_1(public, law.sample(_POOL, 1))
    for _ in range(repetitions):
        ratio = public.noise_multiplier / rng.choice(needed, len(found.places))
        weights = np.where(ratio >= 1.0, 1.0, 0.0 if estimator == "everyone" else ratio)
        cells = found.sums(weights) + deviation * rng.standard_normal(2 * MEASURE.bins)
        counts = ScoreCounts.of_cells(cells, deviation, 0.0 if estimator == "everyone" else 1.0)
        auc = score_metrics.auc(counts, LEVEL)
        truth = found.auc(weights == 1.0 if estimator == "everyone" else np.ones(len(weights), dtype=np.bool_))
        covered += auc.low <= truth <= auc.high
        widths.append(auc.half_width)
    return Row(name, share, estimator, outlook.half_width, float(np.median(widths)), covered / repetitions)


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--only", choices=tuple(PAPER), help="one distribution")
    parser.add_argument("--account", choices=("sums", "renyi"), default="sums")
    given = parser.parse_args()
    found = patients()
    everybody = np.ones(len(found.places), dtype=np.bool_)
    sys.stdout.write(f"{len(everybody):,} test patients in {found.silos} silos, AUC {found.auc(everybody):.4f}\n\n")
    sys.stdout.write(
        "| budgets | share | estimator | expected half width | half width | covered |\n|---|---|---|---|---|---|\n"
    )
    for name in PAPER if given.only is None else (given.only,):
        for share in SHARES:
            for estimator in REQUEST_ESTIMATORS:
                row = measured(found, name, share, estimator, given.account, given.repetitions)
                sys.stdout.write(
                    f"| {row.distribution} | {100 * row.share:g} % | {row.estimator} | {row.expected:.3f} | "
                    f"{row.half_width:.3f} | {row.covered:.3f} |\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
