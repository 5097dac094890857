"""`rpdp plan`: σ from a policy, sampling probabilities from budgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import budget_source, options, runs_text
from rpdp.cli.budget_source import read_source, refuse_unused
from rpdp.cli.frontier_command import NoiseRange, unused
from rpdp.cli.output import print_json, refuse_overwriting
from rpdp.cli.plan_text import remarks_on_delta, show_plan
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable
    from rpdp.planning import PublicPlan, SiloPlan

_FILES = {
    "public_plan": "public-plan.json",
    "silo_plan": "silo-plan.parquet",
    "figure": "plan.html",
    "figure_of_runs": "runs.html",
}

_WEIGHTS = 1.0
"""Every silo counts the same in the average; other weights need the names of all silos."""


def _refuse_old_option(given: bool) -> None:
    if given:
        raise InputError("--frontier is now the command rpdp frontier; see rpdp frontier --help")


def plan(
    rounds: options.Rounds,
    local_steps: options.LocalSteps,
    delta: options.Delta,
    participation: options.Participation = None,
    max_participations: options.MaxParticipations = None,
    participations: options.Participations = None,
    budgets: Annotated[
        Path | None, typer.Option("--budgets", "-b", help="The silo's budget file: whom the plan is for.")
    ] = None,
    distribution: budget_source.DistributionName = None,
    records: budget_source.NominalRecords = None,
    parameters: budget_source.Parameters = None,
    settings: budget_source.DistributionSettings = None,
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
    lifetime_delta: runs_text.LifetimeDelta = None,
    share: Annotated[
        float | None,
        typer.Option("--share", help="A run takes this share of every lifetime budget: how many such runs fit?"),
    ] = None,
    account: runs_text.KindOfAccount = None,
    explain: Annotated[str | None, typer.Option("--explain", help="Explain the plan of one record.")] = None,
    at_knee: Annotated[
        bool,
        typer.Option("--at-knee", help="Take σ from the knee of `rpdp frontier`, instead of --max-epsilon."),
    ] = False,
    noise_multipliers: budget_source.NoiseMultipliers = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", hidden=True, is_eager=True, callback=_refuse_old_option)
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Directory for plans and figure.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Plan a run: σ from a policy, and a sampling probability for every record, never over budget.

    With --share the plan is that of one of several runs: it takes that share of every lifetime budget, and how many
    such runs the budgets pay for is shown.

    Example: `rpdp plan -T 15 -t 50 --participations 8 -d 1e-4 --max-epsilon 10 --budgets budgets.csv`
    """
    schedule = options.schedule_of(rounds, local_steps, participation, max_participations, participations)
    chosen = options.accountant_of(accountant)
    source = read_source(budgets, distribution, records, parameters, settings)
    if source.declared is not None and source.real is not None and not at_knee:
        raise InputError(
            "--distribution beside --budgets only serves to choose σ, with --at-knee; leave it out, the plan is made "
            "for the file"
        )
    refuse_unused({"--noise-multipliers": noise_multipliers}, at_knee or None, "--at-knee, or rpdp frontier")
    where_from = {"--max-epsilon": max_epsilon, "--noise-multiplier": noise_multiplier, "--at-knee": at_knee or None}
    if sum(value is not None for value in where_from.values()) != 1:
        raise InputError(
            "say in one way where σ comes from: --max-epsilon (policy: the cost at q = 1), --at-knee (of the frontier) "
            "or --noise-multiplier σ"
        )
    if out is not None:
        _check_out(out, normaliser, clip_norm, force=force)
    refuse_unused({"--account": account}, share, "--share")
    terms = None if share is None else runs_text.LifetimeTerms.of(account, lifetime_delta, delta)
    lifetime = None if share is None or terms is None else unused(source.public, share, terms)
    compared = NoiseRange(schedule, source.public, delta, chosen, noise_multipliers, lifetime)
    sigma = _noise(compared, max_epsilon, noise_multiplier)
    tuned = at_knee and not source.is_declared
    public = _public(schedule, sigma, delta, clip_norm, normaliser, chosen, share=share, tuned=tuned)
    if share is None or terms is None:
        silo, runs = public.assign(source.planned, estimator=estimator, lifetime_delta=lifetime_delta), None
    else:
        silo, runs = _one_of_several(public, source.planned, estimator, share, terms)
    files = {} if out is None else _write(public, silo, runs, out)
    kept = lifetime_delta if terms is None else terms.lifetime_delta
    remarks = [] if source.real is None else remarks_on_delta(source.real, kept)
    explanation = None if explain is None else silo.explain(explain)
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
                "runs": None if runs is None else runs.facts(),
                "explanation": explanation,
                "files": files,
            }
        )
        return
    show_plan(public, silo, files, explanation, remarks, runs)


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


def _noise(compared: NoiseRange, max_epsilon: float | None, noise_multiplier: float | None) -> float:
    """σ itself, from the policy, or else from the knee."""
    from rpdp.accounting import calibrate_noise

    if noise_multiplier is not None:
        return noise_multiplier
    if max_epsilon is not None:
        return calibrate_noise(
            compared.schedule, epsilon=max_epsilon, delta=compared.delta, accountant=compared.accountant
        )
    points, best = compared.points()
    return points[best].noise_multiplier


def _public(
    schedule: Schedule,
    sigma: float,
    delta: float,
    clip_norm: float | None,
    normaliser: float | None,
    accountant: Accountant,
    *,
    share: float | None,
    tuned: bool,
) -> PublicPlan:
    from rpdp.planning import TUNED_ON_BUDGETS, PublicPlan

    return PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=delta,
        # Probabilities depend neither on L nor on B. Both are required before a plan is written.
        clip_norm=1.0 if clip_norm is None else clip_norm,
        normaliser=1.0 if normaliser is None else normaliser,
        weights=_WEIGHTS,
        accountant=accountant,
        notes=(TUNED_ON_BUDGETS,) if tuned else (),
        share=share,
    )


def _one_of_several(
    public: PublicPlan, budgets: BudgetTable, estimator: str, share: float, terms: runs_text.LifetimeTerms
) -> tuple[SiloPlan, runs_text.PlannedRuns]:
    """The plan of one run that takes its share of unused accounts, and how many such runs fit."""
    from rpdp.planning import assign_allowed

    accounts = unused(budgets, share, terms)
    silo = assign_allowed(public, budgets.ids, accounts.one_run, estimator=estimator)
    return silo, runs_text.PlannedRuns.count(public, budgets, share, terms)


def _write(public: PublicPlan, silo: SiloPlan, runs: runs_text.PlannedRuns | None, out: Path) -> dict[str, str]:
    from rpdp.report import plan_figure, runs_figure, write_figure

    out.mkdir(parents=True, exist_ok=True)
    files = {key: out / name for key, name in _FILES.items()}
    if runs is None:
        del files["figure_of_runs"]
    else:
        write_figure(runs_figure({f"{runs.share:g} of a lifetime": runs.found}), files["figure_of_runs"])
    public.write(files["public_plan"])
    silo.write(files["silo_plan"])
    write_figure(plan_figure({"this silo": silo}), files["figure"])
    return {key: str(file) for key, file in files.items()}
