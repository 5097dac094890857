"""`rpdp account`: what a run costs a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.checks import require_count
from rpdp.cli import options
from rpdp.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from rpdp.accounting import PrivacyCurve, Schedule


def account(
    rounds: options.Rounds,
    local_steps: options.LocalSteps,
    noise_multiplier: Annotated[float, typer.Option("--noise-multiplier", "-s", help="σ, noise over clip norm.")],
    delta: options.Delta,
    q: Annotated[str, typer.Option("--q", help="Sampling probabilities, separated by commas.")] = "0.01,0.1,1",
    participation: options.Participation = None,
    max_participations: options.MaxParticipations = None,
    participations: options.Participations = None,
    realised: Annotated[
        int | None, typer.Option("--realised", help="Also show the cost given that the silo joined this many rounds.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what a run costs a record: ε by both accountants, its profile δ(ε) and the membership advantage.

    Example: `rpdp account --rounds 15 --local-steps 50 --participation 0.5 -s 10.748 -d 1e-4 --q 0.01,0.1,1`
    """
    from rpdp.accounting import PrivacyCurve

    schedule = options.schedule_of(rounds, local_steps, participation, max_participations, participations)
    if realised is not None:
        require_count("--realised", realised, least=0, most=schedule.rounds)
    curve = PrivacyCurve(schedule, noise_multiplier=noise_multiplier, delta=delta)
    renyi = PrivacyCurve(schedule, noise_multiplier=noise_multiplier, delta=delta, accountant="rdp")
    rows = [_price(curve, renyi, value, realised) for value in options.numbers_of("--q", q)]
    if as_json:
        settings = {"noise_multiplier": noise_multiplier, "delta": delta}
        print_json({"schedule": options.schedule_json(schedule), **settings, "prices": rows})
        return
    _show(schedule, noise_multiplier, delta, rows, realised)


def _price(curve: PrivacyCurve, renyi: PrivacyCurve, q: float, realised: int | None) -> dict[str, Any]:
    bounds = curve.bounds(q)
    upper = float(bounds.upper[0])
    levels = (0.25 * upper, 0.5 * upper, upper, 1.5 * upper)
    return {
        "q": q,
        "epsilon_pld": upper,
        "epsilon_lower_bound": float(bounds.lower[0]),
        "epsilon_rdp": renyi.epsilon(q),
        "epsilon_given_realised": None if realised is None else curve.given(realised).epsilon(q),
        "advantage": curve.advantage(q),
        "profile": [{"epsilon": level, "delta": curve.delta(q, level)} for level in levels],
    }


def _show(
    schedule: Schedule, noise_multiplier: float, delta: float, rows: list[dict[str, Any]], realised: int | None
) -> None:
    title = f"{schedule.describe()} · σ = {noise_multiplier:g} · δ = {delta:g}"
    columns = ["q", "ε (pld)", "true ε at least", "ε (rdp)", "advantage at most"]
    if realised is not None:
        columns.append(f"ε given {realised} rounds joined")
    table = []
    for row in rows:
        cells = [f"{row['q']:g}", f"{row['epsilon_pld']:.4g}", f"{row['epsilon_lower_bound']:.4g}"]
        cells += [f"{row['epsilon_rdp']:.4g}", f"{row['advantage']:.2%}"]
        table.append(cells + ([] if realised is None else [f"{row['epsilon_given_realised']:.4g}"]))
    print_table(title, columns, table)
    profile = [[f"{row['q']:g}", *_profile_cells(row)] for row in rows]
    print_table("The profile of each record: δ at other ε", ["q", "¼ ε", "½ ε", "ε", "1½ ε"], profile)
    if schedule.participation is not None and schedule.participation < 1.0:
        say(
            "ε is a promise before the coins are flipped: it averages over how often the silo takes part, which an "
            "observer sees. --realised K shows the cost given K joined rounds; --participations K makes both the same."
        )


def _profile_cells(row: dict[str, Any]) -> list[str]:
    return [f"{point['delta']:.2e}" for point in row["profile"]]
