"""A plan as a table and sentences, for `rpdp plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.cli.output import print_table, say, say_line

if TYPE_CHECKING:
    from rpdp.budgets import BudgetTable
    from rpdp.cli.runs_text import PlannedRuns
    from rpdp.planning import PublicPlan, SiloPlan

_WHY = {
    "left_out_delta_too_small": (
        "sits out: nothing is left of its δ; a larger lifetime δ would let it in",
        "sit out: their δ is below the run's; a smaller --delta or a larger lifetime δ would let them in",
    ),
    "left_out_budget_too_small": (
        "sits out: no sampling probability fits its budget; try fewer rounds or more noise",
        "sit out: no sampling probability fits their budget; try fewer rounds or more noise",
    ),
    "rarely_drawn": (
        "is expected in fewer than one batch of the whole run",
        "are expected in fewer than one batch of the whole run",
    ),
}


def remarks_on_delta(budgets: BudgetTable, lifetime_delta: float | None) -> list[str]:
    """Say which δ of the records was compared with the run's, if any."""
    if budgets.delta is not None and lifetime_delta is not None:
        return ["The file has a lifetime δ for every record: it counts, and --lifetime-delta does not."]
    if budgets.delta is None and lifetime_delta is None:
        return [
            "No lifetime δ was checked: the file has no δ column, and --lifetime-delta was not given. Whether the "
            "run's δ fits what these records have left is not known."
        ]
    return []


def show_plan(
    public: PublicPlan,
    silo: SiloPlan,
    files: dict[str, str],
    explanation: str | None,
    remarks: list[str],
    runs: PlannedRuns | None = None,
) -> None:
    """Print a plan."""
    words = silo.words
    say(
        f"{public.describe()} · {words.noise} = {public.noise_multiplier:.4g} · δ = {public.delta:g} · cost at "
        f"{words.symbol} = 1: ε = {public.curve.largest_cost:.4g} ({_pricing(public)})"
    )
    print_groups(silo)
    summary = silo.summary()
    say(
        f"{words.total} {summary['expected_batch']:.1f} · signal to noise {words.signal} "
        f"{summary['signal_to_noise']:.2f} · "
        f"budget used {summary['mean_share_of_budget_used']:.1%} on average, at most "
        f"{summary['largest_share_of_budget_used']:.1%}"
    )
    for line in [*_remarks(public, summary), *remarks]:
        say(line)
    if runs is not None:
        runs.show()
    if explanation is not None:
        say(explanation)
    if files:
        settings = f"L = {public.clip_norm:g}, B = {public.normaliser:g} and equal weights for all silos"
        say(f"The public plan states {settings}.")
    for name, file in files.items():
        say_line(f"{name.replace('_', ' ')}: {file}")


def print_groups(silo: SiloPlan) -> None:
    """Print the budget groups of a silo plan."""
    rows = []
    for group in silo.groups():
        band = f"{group.low:.4g}" if group.low == group.high else f"{group.low:.4g} – {group.high:.4g}"
        rows.append(
            [
                band,
                f"{group.records:,}",
                f"{group.share_of_records:.1%}",
                f"{group.mean_q:.4g}",
                f"{group.share_of_batch:.1%}",
                f"{group.left_out:,}",
            ]
        )
    columns = ["budget ε", "records", "share", f"mean {silo.words.symbol}", silo.words.share, "left out"]
    print_table("The silo's plan (stays in the silo)", columns, rows)


def _pricing(public: PublicPlan) -> str:
    return public.accountant if public.request is None else "exact"


def _remarks(public: PublicPlan, summary: dict[str, Any]) -> list[str]:
    remarks = list(public.notes)
    for key, why in _WHY.items():
        count = summary[key]
        if count:
            remarks.append(("1 record " + why[0]) if count == 1 else f"{count:,} records {why[1]}")
    if "violation" in summary["facts"]:
        facts = summary["facts"]
        remarks.append(
            f"scf: R² = {facts['r_squared']:.5f}; taken as it is, the fit would overspend up to "
            f"{facts['violation']:.2f} times a budget, so {facts['records_cut_short']:,.0f} records drop out early"
        )
    return remarks
