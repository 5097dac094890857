"""Sections of tables 2 and 3 and of figure 7."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from rpdp_lab.reproduction.drawing import Panel, Series, draw
from rpdp_lab.reproduction.published import PAPER_TABLE_2, PAPER_TABLE_3
from rpdp_lab.reproduction.sections.common import (
    DASH,
    footnote,
    grouped,
    image,
    mean,
    numbers,
    provenance,
    run,
    spread,
    spread_of_seeds,
    table,
)
from rpdp_lab.reproduction.suite import Section, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rpdp_lab.reproduction.cell import CellResult

NAMES = {"heart": "Heart-Disease (pooled)", "mnist": "MNIST (pooled)"}
PARTS = {
    "heart": "Heart-Disease (pooled), published split",
    "heart, other splits": "Heart-Disease (pooled), other splits",
    "mnist": "MNIST (pooled)",
}
OURS, SCF, FILTER = "rPDP-SGD (certified)", "SCF under the accountant", "Filter"
PUBLISHED = {OURS: "SCF", SCF: "SCF", FILTER: "Filter"}
GOALS = {"heart": 0.82, "mnist": 0.955}
SCENARIOS = {
    "group-3": "Group-3 (ε = 1, 2, 3 for 54, 37, 9 %)",
    "group-100": "Group-100 (ε = 1, 1.05, …, 5.95)",
    "individual-1000": "Individual-1000 (BoundedMixGauss)",
}
ESTIMATORS = {"binary_search": "BinarySearch", "scf": "SCF", "certified": "certified (ours)"}
MODELS = {
    "cnn": "the paper's CNN",
    "cnn, public start": "the paper's CNN from strokes",
    "features": "linear on fixed features",
}
TIMED = "features"
"""With whose σ the probabilities are timed."""

FIT_IS_OFF = (
    "the fit is far off at the small q of this setting: records would overspend, so the accountant ends them early"
)
UNSTATED = (
    "from a random start we do not get there at δ = 1e-4; the paper states neither δ, batch, steps nor rate for it"
)
TOO_LITTLE = "we do not know how the paper gets there; BinarySearch gets as far as ours, so it is not the probabilities"


def table_2(findings: Sequence[CellResult]) -> Section:
    """Accuracy and time per step of all methods on both tasks."""
    lines = [
        "Training in one place. ThreeLevels ε = 2.0 / 4.7 / 11.8 for 70 / 20 / 10 %, expected batch 32 and 64, δ = "
        "1e-3 (Heart-Disease) and 1e-4 (MNIST), the paper's values for its federated runs; Heart-Disease by logistic "
        "regression, MNIST by the paper's network with tanh. *Filter* is private gradient descent on everybody whose "
        "budget is not used up. The paper's SCF row is its whole method; ours is *certified*. *SCF under the "
        "accountant* takes the published fit and ends a record when its budget is used up.",
        "",
    ]
    verdicts = []
    by_part = {part: [each for each in run(findings) if each.part == part] for part in PARTS}
    penalised = mean(numbers([each for each in findings if each.part == "heart, no privacy"], "accuracy"))
    for part, group in by_part.items():
        if not group:
            continue
        task, first = group[0].settings["task"], group[0].numbers
        lines += [
            f"**{PARTS[part]}**: {first['train_records']:,} training and {first['test_records']:,} test records.",
            "",
        ]
        rows = []
        for (method,), cells in grouped(group, "method").items():
            paper = None if part == "heart, other splits" else PAPER_TABLE_2.get((task, PUBLISHED.get(method, "")))
            rows.append(
                [
                    method,
                    DASH if paper is None else f"{paper.accuracy:.4f}",
                    spread(numbers(cells, "accuracy")),
                    DASH if paper is None else f"{paper.seconds_per_step:.4f}",
                    f"{statistics.median(numbers(cells, 'seconds_per_step')):.4f}",
                    f"{statistics.fmean(numbers(cells, 'records_per_step')):,.0f}",
                    str(len(cells)),
                ]
            )
            if paper is not None:
                verdicts += _verdicts_2(task, method, numbers(cells, "accuracy"), penalised)
        columns = ["method", "paper", "ours", "paper s/step (A40)", "ours s/step (1 core)", "records/step", "seeds"]
        lines += table(columns, rows)
        notes = {finding.numbers["note"] for finding in group if finding.numbers.get("note")}
        lines += [f"- {note}" for note in sorted(notes)[:1]]
        lines.append("")
    return Section([*lines, *_why_not(by_part["heart"], penalised), *provenance(findings)], verdicts=verdicts)


def _why_not(heart: Sequence[CellResult], penalised: float | None) -> list[str]:
    """Why 0.82 is not reached on Heart-Disease, as far as the cells for that are there."""
    by_method = grouped(heart, "method")
    plain, ours = (numbers(by_method.get((name,), []), "accuracy") for name in ("plain SGD", OURS))
    if not plain or not ours or penalised is None:
        return []
    return [
        "**Why not 0.82 on Heart-Disease.** The paper takes the pooled Fed-Heart-Disease data, whose code (FLamby) "
        "fixes a split of 486 and 254 patients; we assume it was used. On it plain SGD without any privacy reaches "
        f"{spread(plain)}: at these budgets privacy is not what is in the way. Logistic regression with the penalty "
        f"that is best *on the test records* gets {penalised:.4f}, {round(penalised * 254)} of 254 patients; the "
        f"paper's 0.8189 is 208, the goal 209. Our runs go from {min(ours):.4f} to {max(ours):.4f}. The paper calls "
        "all its numbers means of five runs; yet 0.8189 and 0.7717 are whole numbers of patients, so each may be a "
        "single run. On other splits of the 740 patients methods differ no more than splits do.",
        "",
    ]


def _verdicts_2(task: str, method: str, accuracies: Sequence[float], penalised: float | None) -> list[Verdict]:
    found = mean(accuracies)
    if found is None or method not in PUBLISHED:
        return []
    paper = PAPER_TABLE_2[task, PUBLISHED[method]].accuracy
    goal = GOALS[task] if method == OURS else paper
    who = "ours" if method == OURS else method
    why = FIT_IS_OFF if method == SCF else ""
    if task == "heart" and penalised is not None:
        why = (
            f"without privacy this model does not reach it on this split either, {penalised:.4f} with the best penalty"
        )
    what = f"table 2: {who} on {PARTS[task]}, goal {goal:g}"
    return [Verdict(what, f"{paper:.4f}", spread_of_seeds(accuracies), found >= goal, better=method == OURS, why=why)]


def figure_7(findings: Sequence[CellResult]) -> Section:
    """Active records over steps, by budget."""
    panels, rows = [], []
    for (task, less), group in grouped(run(findings), "task", "filter_noise").items():
        found = group[0].numbers
        name = NAMES[task] if less is None else f"{NAMES[task]}, σ = {less:g}"
        series = [
            Series(f"ε = {level}", found["at"], counts, colour)
            for colour, (level, counts) in enumerate(found["active"].items())
        ]
        total = [float(sum(values)) for values in zip(*found["active"].values(), strict=True)]
        whole = Series("all", found["at"], total, 4, dashed=True)
        panels.append(Panel(name, "step", "active records", [*series, whole]))
        filtered = found["first_filtered"]
        rows += [
            [
                name,
                f"ε = {level}",
                _step(filtered[level]),
                f"{counts[-1]:,} of {counts[0]:,}",
                f"{found['accuracy']:.4f}",
            ]
            for level, counts in found["active"].items()
        ]
    return Section(
        [
            "Private gradient descent with Filter, the first seed of table 2. Where records are filtered, those with "
            "small budgets leave first and training goes on without them, as in the paper. With the settings of table "
            "2, chosen for accuracy on other splits, Filter takes so much noise on Heart-Disease that no budget is "
            "used up: the early leaving that the paper sees there is not seen. A run with less noise shows it.",
            "",
            *image("figure-7.svg", "active records over the steps of Filter"),
            *table(["data", "budget", "first record filtered at step", "active at the end", "accuracy"], rows),
            *provenance(findings),
        ],
        {"figure-7.svg": draw(panels, columns=3, note=footnote(findings))},
        [_smallest_first(run(findings))],
    )


def _smallest_first(findings: Sequence[CellResult]) -> Verdict:
    """Whether nobody with a larger budget leaves before those with a smaller one."""
    orders = [
        [math.inf if step is None else step for _, step in sorted(each.numbers["first_filtered"].items(), key=_level)]
        for each in findings
    ]
    telling = [order for order in orders if min(order) < math.inf]
    held = sum(order == sorted(order) for order in telling)
    what = "figure 7: records with smaller budgets are filtered first"
    told = f"in {held} of {len(telling)} runs in which anybody is filtered; in {len(orders) - len(telling)} nobody is"
    return Verdict(what, "yes", told, bool(telling) and held == len(telling), better=False)


def _level(entry: tuple[str, int | None]) -> float:
    return float(entry[0])


def _step(number: int | None) -> str:
    return "never" if number is None else str(number)


def table_3(findings: Sequence[CellResult]) -> Section:
    """Time to probabilities and accuracy for three scenarios."""
    lines = [
        "1,000 training examples of MNIST, 10,000 test images, δ = 1e-4; the paper does not state δ, batch or "
        "steps of this table. σ is the same for all estimators, who differ in q only. Times are those of getting the "
        "1,000 probabilities with the PLD accountant, from nothing; the paper's are with RDP on its machine, so "
        "compare rows, not columns; where it takes less than a second, the median of up to five. *From strokes*: the "
        "same network, all of it trained, but started from made-up pen strokes instead of at random "
        "(`rpdp_lab.features.public_start`), which needs no data. Settings of the networks were chosen on other "
        "training images.",
        "",
    ]
    verdicts = []
    for (scenario,), group in grouped(run(findings), "scenario").items():
        rows = []
        for (estimator,), cells in grouped(group, "estimator").items():
            paper = PAPER_TABLE_3.get((scenario, estimator))
            by_model = {model: numbers(found, "accuracy") for (model,), found in grouped(cells, "model").items()}
            rows.append(
                [
                    ESTIMATORS[estimator],
                    DASH if paper is None else f"{paper[0]:.4f}",
                    *(spread(by_model.get(model, [])) for model in MODELS),
                    DASH if paper is None else f"{paper[1]:.2f}",
                    f"{_seconds(cells):.3f}",
                    f"{max(numbers(cells, 'largest_ratio')):.3f}",
                ]
            )
        lines += [f"**{SCENARIOS[scenario]}**", ""]
        columns = [
            "method",
            "paper",
            *(f"ours, {name}" for name in MODELS.values()),
            "paper s",
            "ours s",
            "cost/ε at most",
        ]
        lines += table(columns, rows)
        verdicts += _verdicts_3(scenario, grouped(group, "estimator"))
    lines += [
        "*cost/ε at most*: if no record were ended early; above 1 the accountant has to end some.",
        "",
        *provenance(findings),
    ]
    return Section(lines, verdicts=verdicts)


def _seconds(cells: Sequence[CellResult]) -> float:
    """The median time to get the probabilities."""
    return statistics.median(numbers([cell for cell in cells if cell.settings["model"] == TIMED], "seconds"))


def _verdicts_3(scenario: str, groups: Mapping[tuple[Any, ...], list[CellResult]]) -> list[Verdict]:
    ours, search = groups.get(("certified",), []), groups.get(("binary_search",), [])
    if not ours or not search:
        return []
    goal = PAPER_TABLE_3[scenario, "scf"][0]
    by_model = {model: numbers(found, "accuracy") for (model,), found in grouped(ours, "model").items()}
    found = [
        Verdict(
            f"table 3: {SCENARIOS[scenario].split(' ')[0]}, {MODELS[model]}, goal {goal:g}",
            f"{goal:.4f}",
            spread_of_seeds(values),
            statistics.fmean(values) >= goal,
            other_model=model != "cnn",
            why=TOO_LITTLE if scenario == "individual-1000" else UNSTATED,
        )
        for model, values in by_model.items()
        if values
    ]
    if scenario == "individual-1000":
        ratio = _seconds(ours) / _seconds(search)
        found.append(
            Verdict(
                "table 3: time of Individual-1000 against BinarySearch, goal below 1 %",
                "2.4 % (14.10 s of 597.82 s, SCF)",
                f"{ratio:.2%}",
                ratio < 0.01,
                why="our BinarySearch is fast itself: the paper's took 598 s",
            )
        )
    return found
