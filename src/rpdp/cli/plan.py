"""`rpdp plan`: from policy to σ, from budgets to sampling probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options
from rpdp.cli.frontier import Range, show_frontier
from rpdp.cli.output import print_json, print_table, refuse_overwriting, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable
    from rpdp.planning import PublicPlan, SiloPlan

_FILES = {"public_plan": "public-plan.json", "silo_plan": "silo-plan.parquet", "figure": "plan.html"}

_WHY = {
    "left_out_delta_too_small": (
        "sits out: its δ is below the run's; a smaller --delta or a larger lifetime δ would let it in",
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


def plan(
    rounds: options.Rounds,
    local_steps: options.LocalSteps,
    delta: options.Delta,
    participation: options.Participation = None,
    max_participations: options.MaxParticipations = None,
    participations: options.Participations = None,
    budgets: Annotated[
        Path | None, typer.Option("--budgets", "-b", help="The silo's budget file: what is planned.")
    ] = None,
    distribution: Annotated[
        str | None,
        typer.Option("--distribution", help="A declared distribution, to choose σ from or instead of a file."),
    ] = None,
    records: Annotated[
        int | None, typer.Option("--records", "-n", help="Nominal size, with --distribution (1000 if not given).")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option("--parameters", help="With --distribution: paper (default) or authors.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="With --distribution: levels=1,3,10. Repeatable.")
    ] = None,
    max_epsilon: Annotated[
        float | None,
        typer.Option("--max-epsilon", help="Policy: the cost at q = 1 is at most this; gives σ."),
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", "-s", help="σ itself, instead of --max-epsilon.")
    ] = None,
    clip_norm: Annotated[float, typer.Option("--clip-norm", help="L, the clip norm.")] = 1.0,
    normaliser: Annotated[
        float | None, typer.Option("--normaliser", help="B, the public divisor of the noisy sum. Needed with --out.")
    ] = None,
    accountant: options.AccountantOption = "pld",
    estimator: Annotated[str, typer.Option("--estimator", help="certified, scf or binary_search.")] = "certified",
    lifetime_delta: Annotated[
        float | None,
        typer.Option("--lifetime-delta", help="δ that records without one of their own allow for life."),
    ] = None,
    explain: Annotated[str | None, typer.Option("--explain", help="Tell the story of one record.")] = None,
    frontier: Annotated[bool, typer.Option("--frontier", help="Compare a range of σ instead of planning.")] = False,
    at_knee: Annotated[
        bool,
        typer.Option("--at-knee", help="Take σ from the knee of the frontier, instead of --max-epsilon."),
    ] = False,
    noise_multipliers: Annotated[
        str | None, typer.Option("--noise-multipliers", help="The frontier's σ values, separated by commas.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Directory for plans and figure.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Plan a run: σ from a policy, a sampling probability for every record, never over budget.

    Example: `rpdp plan -T 15 -t 50 --participations 8 -d 1e-4 --max-epsilon 10 --budgets budgets.csv`

    Trade-off: `rpdp plan -T 15 -t 50 --participations 8 -d 1e-4 --distribution ThreeLevels -n 4000 --frontier`
    """
    schedule = options.schedule_of(rounds, local_steps, participation, max_participations, participations)
    chosen = options.accountant_of(accountant)
    _refuse_idle({"--records": records, "--parameters": parameters, "--set": settings}, distribution, "--distribution")
    declared = None if distribution is None else _declared(distribution, records, parameters, settings)
    real = None if budgets is None else _read(budgets)
    source = declared if declared is not None else real  # public settings come from what is declared, if anything is
    table = real if real is not None else declared
    if source is None or table is None:
        raise InputError("give --budgets FILE, or --distribution NAME with --records N, or both")
    range_of_noise = Range(schedule, source, delta, chosen, noise_multipliers, covered=declared is not None)
    where_from = {"--max-epsilon": max_epsilon, "--noise-multiplier": noise_multiplier, "--at-knee": at_knee or None}
    if frontier:
        _refuse_with_frontier({**where_from, "--explain": explain, "--normaliser": normaliser})
        show_frontier(range_of_noise, out, force=force, as_json=as_json)
        return
    _refuse_idle({"--noise-multipliers": noise_multipliers}, at_knee or None, "--frontier or --at-knee")
    if sum(value is not None for value in where_from.values()) != 1:
        raise InputError(
            "say in one way where σ comes from: --max-epsilon (policy: the cost at q = 1), --at-knee (of the frontier) "
            "or --noise-multiplier σ"
        )
    if out is not None:
        _check_out(out, normaliser, force=force)
    sigma = _noise(range_of_noise, max_epsilon, noise_multiplier)
    tuned = at_knee and not range_of_noise.covered
    public = _public(schedule, sigma, delta, clip_norm, normaliser, chosen, tuned=tuned)
    silo = public.assign(table, estimator=estimator, lifetime_delta=lifetime_delta)
    files = {} if out is None else _write(public, silo, out)
    story = None if explain is None else silo.explain(explain)
    if as_json:
        fingerprint = None if normaliser is None else public.fingerprint
        print_json(
            {
                "schedule": options.schedule_json(schedule),
                "noise_multiplier": sigma,
                "delta": delta,
                "accountant": chosen,
                "largest_cost": public.curve.largest_cost,
                "fingerprint": fingerprint,
                "notes": list(public.notes),
                "silo": silo.summary(),
                "explanation": story,
                "files": files,
            }
        )
        return
    _show(public, silo, files, story)


def _read(file: Path) -> BudgetTable:
    from rpdp.budgets import BudgetTable

    return BudgetTable.read(file)


def _declared(
    distribution: str, records: int | None, parameters: str | None, settings: list[str] | None
) -> BudgetTable:
    from rpdp.budgets import distribution as named

    chosen = named(distribution, parameters or "paper", options.overrides_of(settings or []))
    return options.sampled(chosen, 1000 if records is None else records, seed=0, prefix="nominal")


def _refuse_idle(given: dict[str, object], needed: object, needs: str) -> None:
    """An option that would do nothing is a misunderstanding: better said than swallowed."""
    idle = [name for name, value in given.items() if value is not None]
    if idle and needed is None:
        raise InputError(f"{' and '.join(idle)} only go{'' if len(idle) > 1 else 'es'} with {needs}")


def _refuse_with_frontier(given: dict[str, object]) -> None:
    idle = [name for name, value in given.items() if value is not None]
    if idle:
        raise InputError(f"--frontier compares many σ and makes no plan: leave out {' and '.join(idle)}")


def _check_out(out: Path, normaliser: float | None, *, force: bool) -> None:
    if normaliser is None:
        raise InputError(
            "--out writes the public plan, which needs --normaliser B: the public divisor of the noisy sum, chosen "
            "from declared sizes, for example the batch that the declared distribution is expected to give"
        )
    refuse_overwriting([out / name for name in _FILES.values()], force=force)


def _noise(frontier: Range, max_epsilon: float | None, noise_multiplier: float | None) -> float:
    """σ itself, from the policy, or else from the knee."""
    from rpdp.accounting import calibrate_noise

    if noise_multiplier is not None:
        return noise_multiplier
    if max_epsilon is not None:
        return calibrate_noise(
            frontier.schedule, epsilon=max_epsilon, delta=frontier.delta, accountant=frontier.accountant
        )
    points, best = frontier.points()
    return points[best].noise_multiplier


def _public(
    schedule: Schedule,
    sigma: float,
    delta: float,
    clip_norm: float,
    normaliser: float | None,
    accountant: Accountant,
    *,
    tuned: bool,
) -> PublicPlan:
    from rpdp.planning import TUNED_ON_BUDGETS, PublicPlan

    return PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=delta,
        clip_norm=clip_norm,
        normaliser=1.0 if normaliser is None else normaliser,  # probabilities do not depend on it
        weights=1.0,
        accountant=accountant,
        notes=(TUNED_ON_BUDGETS,) if tuned else (),
    )


def _write(public: PublicPlan, silo: SiloPlan, out: Path) -> dict[str, str]:
    from rpdp.report import plan_figure, write_figure

    out.mkdir(parents=True, exist_ok=True)
    files = {key: out / name for key, name in _FILES.items()}
    public.write(files["public_plan"])
    silo.write(files["silo_plan"])
    write_figure(plan_figure({"this silo": silo}), files["figure"])
    return {key: str(file) for key, file in files.items()}


def _show(public: PublicPlan, silo: SiloPlan, files: dict[str, str], story: str | None) -> None:
    say(
        f"{public.schedule.describe()} · σ = {public.noise_multiplier:.4g} · δ = {public.delta:g} · cost at q = 1: "
        f"ε = {public.curve.largest_cost:.4g} ({public.accountant})"
    )
    print_groups(silo)
    summary = silo.summary()
    say(
        f"expected batch {summary['expected_batch']:.1f} · signal to noise Σq/σ {summary['signal_to_noise']:.2f} · "
        f"budget used {summary['mean_share_of_budget_used']:.1%} on average, at most "
        f"{summary['largest_share_of_budget_used']:.1%}"
    )
    for line in _remarks(public, summary):
        say(line)
    if story is not None:
        say(story)
    for name, file in files.items():
        say_line(f"{name.replace('_', ' ')}: {file}")


def print_groups(silo: SiloPlan) -> None:
    """The budget groups of a silo plan as a table."""
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
    columns = ["budget ε", "records", "share", "mean q", "share of the batch", "left out"]
    print_table("The silo's plan (stays in the silo)", columns, rows)


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
