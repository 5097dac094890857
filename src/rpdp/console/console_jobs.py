"""What the console's jobs do, each in a process of its own: count, verify, pack for an auditor, look ahead, audit."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.ledger import Ledger
from rpdp.ledger.inspection.use_over_time import UseOverTime, use_over_time
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from rpdp.console.run_forecast import RunForecast
    from rpdp.deployment.files.silo_file import LimitSection
    from rpdp.ledger.inspection.overview import Overview
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.planning import PublicPlan

_ABOUT_PACKAGE = """\
For the auditor of silo {silo}
==============================

ledger.db           a copy of the ledger: every event, booking and steward action, with actors and reasons. It was made
                    without the key of the ids, so nobody can be looked up in it.
verification.json   what the silo's own verification found on {at}.

Check it yourself, on your own machine and with your own installation of rpdp:

    rpdp ledger verify ledger.db
    rpdp ledger show ledger.db

Compare the public head with the one that the server keeps: {count:,} public events, head
{head}

Confidential: the file holds every budget of the silo, actors and reasons.
"""


@dataclass(frozen=True)
class CountedBudgets:
    """The ledger in numbers, as of one state of it, and what the next run would find."""

    overview: Overview
    use: UseOverTime
    forecast: RunForecast | None
    why_none: str


def count_budgets(ledger: Path, limits: LimitSection, progress: Progress) -> CountedBudgets:
    """Count all budgets, and look ahead with the plan of the last run, or else the largest that the policy admits."""
    from rpdp.console.run_forecast import forecast_of_ledger
    from rpdp.errors import RpdpError
    from rpdp.planning import Allowance

    with Ledger.read(ledger) as opened, opened.reading():
        use, overview = use_over_time(opened, progress), opened.overview(progress)
        public = last_plan(opened, limits)
    if limits.max_share_per_run is None:
        return CountedBudgets(
            overview, use, None, "the silo file states no max_share_per_run, so no new run is admitted"
        )
    allowance = Allowance(share=limits.max_share_per_run, max_epsilon=limits.max_epsilon_per_run)
    progress("looking ahead", 0, 1)
    try:
        return CountedBudgets(overview, use, forecast_of_ledger(use.sample, public, allowance), "")
    except RpdpError as error:
        return CountedBudgets(overview, use, None, str(error))


def last_plan(ledger: LedgerBase, limits: LimitSection) -> PublicPlan:
    """The plan of the last training run, or the largest plan that the policy admits if there was none."""
    plans = [one.public for one in ledger.runs.booked() if one.public.request is None]
    return plans[-1] if plans else limits.largest_plan(ledger.account)


def verify_ledger(ledger: Path, progress: Progress) -> dict[str, Any]:
    """Verify a ledger, as `rpdp ledger verify` does."""
    with Ledger.read(ledger) as opened:
        found, head = opened.verify(progress), opened.public_head()
    return {
        "at": datetime.now(UTC).isoformat("T", "seconds"),
        "good": found.is_good,
        **asdict(found),
        "head": asdict(head),
    }


def pack_for_auditor(ledger: Path, silo: str, file: Path, progress: Progress) -> dict[str, Any]:
    """Copy a ledger without its key, verify the copy, and pack both into a ZIP file."""
    copy = file.with_suffix(".db")
    try:
        with Ledger.read(ledger) as opened:
            progress("copying", 0, 1)
            opened.copy(copy)
        verified = verify_ledger(copy, progress)
        text = _ABOUT_PACKAGE.format(silo=silo, at=verified["at"], **_head(verified))
        with private_file(file, overwrite=True) as target, zipfile.ZipFile(target, "w") as package:
            package.write(copy, "ledger.db")
            package.writestr("verification.json", json.dumps(verified, indent=2) + "\n")
            package.writestr("README.txt", text)
    finally:
        for made in copy.parent.glob(f"{copy.name}*"):
            made.unlink()
    return verified


def _head(verified: dict[str, Any]) -> dict[str, Any]:
    return {"count": verified["head"]["count"], "head": verified["head"]["head"]}


def audit_build(ledger: Path, limits: LimitSection, per_group: int, progress: Progress) -> dict[str, Any]:
    """Attack this build with canaries, under the plan of the last run. A simulation: no account is touched."""
    from rpdp.audit.silo_audit import Subject, audit_silo

    with Ledger.read(ledger) as opened, opened.reading():
        public = last_plan(opened, limits)
    result = audit_silo(
        Subject(public), per_group=per_group, on_round=lambda done, of: progress("rounds under attack", done, of)
    )
    return {"at": datetime.now(UTC).isoformat("T", "seconds"), "schedule": public.describe(), **result.to_json()}


def look_ahead(ledger: Path | None, settings: dict[str, Any], progress: Progress) -> RunForecast:
    """What if: a forecast from declared budgets, or from the accounts of a ledger."""
    from rpdp.accounting import Schedule
    from rpdp.budgets import BudgetTable, distribution
    from rpdp.console.run_forecast import forecast_of_declared, forecast_of_ledger
    from rpdp.planning import Allowance, PublicPlan

    schedule = Schedule(settings["rounds"], settings["local_steps"], participation=settings["participation"])
    public = PublicPlan(
        schedule,
        noise_multiplier=settings["noise_multiplier"],
        delta=settings["delta"],
        clip_norm=1.0,
        normaliser=1.0,
        weights=1.0,
    )
    allowance = Allowance(share=settings["share"])
    if ledger is not None:
        with Ledger.read(ledger) as opened:
            sample = use_over_time(opened, progress).sample
        progress("planning", 0, 1)
        return forecast_of_ledger(sample, public, allowance, settings["runs"])
    name = settings["distribution"]
    if name == "":
        raise InputError("choose a distribution, or the ledger")
    progress("planning", 0, 1)
    values = distribution(name).sample(min(settings["records"], 2_000), 0)
    table = BudgetTable([f"{number}" for number in range(len(values))], values)
    declared = (settings["account"], settings["lifetime_delta"], settings["records"], settings["runs"])
    return forecast_of_declared(table, public, allowance, *declared)
