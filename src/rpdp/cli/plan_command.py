"""`rpdp plan`: from policy to σ, from budgets to sampling probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import options
from rpdp.cli.frontier_command import Range, show_frontier
from rpdp.cli.output import print_json, refuse_overwriting
from rpdp.cli.plan_words import remarks_on_delta, show_plan
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable
    from rpdp.planning import PublicPlan, SiloPlan

_FILES = {"public_plan": "public-plan.json", "silo_plan": "silo-plan.parquet", "figure": "plan.html"}

_WEIGHTS = 1.0
"""Every silo counts the same in the average; other weights need the names of all silos."""


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
    clip_norm: Annotated[float | None, typer.Option("--clip-norm", help="L, the clip norm. Needed with --out.")] = None,
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
    if declared is not None and real is not None and not (frontier or at_knee):
        raise InputError(
            "--distribution beside --budgets only serves to choose σ, with --at-knee or --frontier; leave it out, the "
            "plan is made for the file"
        )
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
        _check_out(out, normaliser, clip_norm, force=force)
    sigma = _noise(range_of_noise, max_epsilon, noise_multiplier)
    tuned = at_knee and not range_of_noise.covered
    public = _public(schedule, sigma, delta, clip_norm, normaliser, chosen, tuned=tuned)
    silo = public.assign(table, estimator=estimator, lifetime_delta=lifetime_delta)
    files = {} if out is None else _write(public, silo, out)
    remarks = [] if real is None else remarks_on_delta(real, lifetime_delta)
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
                "clip_norm": clip_norm,
                "normaliser": normaliser,
                "weights": _WEIGHTS,
                "fingerprint": fingerprint,
                "notes": list(public.notes),
                "remarks": remarks,
                "silo": silo.summary(),
                "explanation": story,
                "files": files,
            }
        )
        return
    show_plan(public, silo, files, story, remarks)


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


def _check_out(out: Path, normaliser: float | None, clip_norm: float | None, *, force: bool) -> None:
    if normaliser is None:
        raise InputError(
            "--out writes the public plan, which needs --normaliser B: the public divisor of the noisy sum, chosen "
            "from declared sizes, for example the batch that the declared distribution is expected to give"
        )
    if clip_norm is None:
        raise InputError(
            "--out writes the public plan, which needs --clip-norm L: the largest influence of one record on one step, "
            "for example 1.0"
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
    clip_norm: float | None,
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
        clip_norm=1.0 if clip_norm is None else clip_norm,  # probabilities depend neither on it
        normaliser=1.0
        if normaliser is None
        else normaliser,  # nor on this; both are asked for before a plan is written
        weights=_WEIGHTS,
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
