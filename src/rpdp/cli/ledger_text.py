"""A ledger at a glance, for `rpdp ledger show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.cli.output import print_table, say

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.ledger.inspection.overview import LostLedger, Overview, RunOverview


def show_overview(ledger: Path, overview: Overview) -> None:
    """Print the budgets in force, the runs and the totals of a ledger."""
    say(
        f"{ledger}: a {overview.kind} ledger of {overview.records:,} records, created {overview.created}; lifetime δ "
        f"{overview.lifetime_delta:g} unless a record has its own"
    )
    say(_accounts(overview))
    if overview.succeeds is not None:
        say(_succession(overview.succeeds))
    rows = [
        [
            f"{group.low:g} – {group.high:g}" if group.high is not None else f"above {group.low:g}",
            f"{group.records:,}",
            f"{group.mean_epsilon:.4g}",
            f"{group.mean_share_used:.1%}",
            f"{group.exhausted:,}",
            f"{group.off:,}",
        ]
        for group in overview.groups
    ]
    print_table("Budgets in force", ["ε", "records", "mean ε", "mean share used", "nothing left", "not drawn"], rows)
    runs = [
        [
            run.status.run,
            f"{run.status.announced} / {run.status.rounds}",
            f"{len(run.status.joined)}",
            f"{len(run.status.released)}",
            f"{run.drawn:,}",
            f"{run.mean_cost:.4g}",
            f"{run.largest_cost:.4g}",
            f"{run.delta:g}",
        ]
        for run in overview.runs
    ]
    columns = ["run", "rounds charged", "joined", "released", "records", "mean ε", "largest ε", "δ"]
    print_table("Runs", columns, runs) if runs else say("No run has been admitted yet.")
    if runs:
        print_table("What they were for", ["run", "share", "purpose", "study"], list(map(_use, overview.runs)))
    for run in overview.runs:
        if run.status.state != "committed":
            say(_not_begun(run))
    say(
        f"{overview.withdrawn:,} withdrawn · {overview.never_used:,} never used · {overview.events:,} events · "
        f"{overview.pending_actions:,} steward actions waiting to be booked · {overview.updates:,} updates kept "
        f"({overview.update_bytes / 1e6:,.1f} MB)"
    )


def describe_accounts(account: str, silos_per_person: int) -> str:
    """Say which accounts records get in a ledger, and for how many silos per person."""
    kind = {
        "renyi": "Rényi accounts (a filter at a fixed order)",
        "sums": "sum accounts ((ε, δ) of runs add up)",
    }[account]
    if silos_per_person == 1:
        return f"Records get {kind}; a person has an account in this silo only."
    return f"Records get {kind}; a person may have accounts in up to {silos_per_person} silos."


def _accounts(overview: Overview) -> str:
    said = describe_accounts(overview.account, overview.silos_per_person)
    others = overview.records - overview.renyi_accounts if overview.account == "renyi" else overview.renyi_accounts
    other = "sum" if overview.account == "renyi" else "Rényi"
    return f"{said} {others:,} records have {other} accounts." if others else said


def _succession(lost: LostLedger) -> str:
    from rpdp.ledger.inspection.carried_over import since_the_export

    return (
        f"It succeeds ledger {lost.ledger[:12]}…, which was lost ({lost.reason}); made by {lost.actor}. Booked for "
        f"that: what the last export showed, and {since_the_export(lost.runs_since)}."
    )


def _use(run: RunOverview) -> list[str]:
    """Return the largest share of a lifetime budget that a run was allowed, and what it was for."""
    return [run.status.run, "all" if run.share is None else f"{run.share:.3g}", run.purpose, run.study or "–"]


def _not_begun(run: RunOverview) -> str:
    """Say what became of a run that has charged no round."""
    name = f"Run {run.status.run}"
    if run.cancelled_by is None:
        until = "" if run.status.expires is None else f" until {run.status.expires}"
        return f"{name} holds its budgets{until}; no round is charged yet."
    if run.cancelled_by == "expiry":
        return f"{name} expired before its first round; all that it held was returned."
    reason = f": {run.public_reason}" if run.public_reason else ""
    if not run.is_covered:
        reason = ": no public reason was given, so this is not covered by the promise"
    return f"{name} was cancelled by the {run.cancelled_by} before its first round{reason}. All of it was returned."
