"""What `rpdp silo check` says of the next run: the outlook from the silo's ledger, and the time that planning takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.deployment.agent.release_timing import TRAINING_SHARE
from rpdp.errors import PrivacyRefusal, RpdpError
from rpdp.federation.silo_outlook import silo_outlook

if TYPE_CHECKING:
    from rpdp.deployment.agent.agent import Agent
    from rpdp.deployment.files.silo_file import SiloFile
    from rpdp.ledger.inspection.outlook import Outlook
    from rpdp.planning import PublicPlan

_PLANNINGS = 2.0
"""An admission plans and finds the outlook for the silo's log, which plans as well: at most twice that time."""


@dataclass(frozen=True)
class CheckedOutlook:
    """What a run would find at the silo now. Sensitive.

    Attributes:
        what: The run that it is for.
        outlook: The outlook; None if there is none.
        problem: Why there is none.
        seconds: How long finding it takes, once the tables of the plan are made. It depends on the records.
    """

    what: str
    outlook: Outlook | None
    problem: str = ""
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """What to tell the steward."""
        told = [f"not known: {self.problem}"] if self.outlook is None else self.outlook.lines()
        return [f"the next run, as {self.what}:", *told]


def checked_outlook(spec: SiloFile, agent: Agent, public: PublicPlan | None) -> CheckedOutlook:
    """Find the outlook of a run of this plan, or else of the largest run that the policy admits. Nothing is held."""
    what = "the largest run that the policy admits" if public is None else f"plan {public.fingerprint[:12]}…"
    try:
        plan = spec.policy.largest_plan(agent.silo.account.account) if public is None else public
        silo_outlook(agent.silo, plan)  # makes the plan's tables, which are public
        began = time.perf_counter()
        found = silo_outlook(agent.silo, plan)
        return CheckedOutlook(what, found, seconds=time.perf_counter() - began)
    except RpdpError as error:
        return CheckedOutlook(what, None, str(error))


def require_time_to_plan(spec: SiloFile, checked: CheckedOutlook) -> None:
    """Refuse a `release_after` that an admission can exceed because of the records."""
    after, needed = spec.policy.release_after, _PLANNINGS * checked.seconds / TRAINING_SHARE
    if after is not None and needed > after:
        raise PrivacyRefusal(
            f"{spec.path}: policy.release_after={after:g} is too short: planning a run for these records can take "
            f"{needed:.3g} s here, and an admission that is late would show that. Use a longer release_after"
        )
