"""The outlook of a run at a silo, from the silo's real ledger and its own policy. It stays with the silo."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpdp.federation.silo import Silo
    from rpdp.ledger import Ledger
    from rpdp.ledger.inspection.outlook import Outlook, RecordOutlooks
    from rpdp.planning import PublicPlan


def silo_record_outlooks(silo: Silo, ledger: Ledger, public: PublicPlan) -> RecordOutlooks:
    """Find what a new run of this plan would find at a silo now, record by record. Nothing is held.

    Refused if the silo's policy has no allowance for a run. Other limits of the policy are not checked here.
    """
    from rpdp.ledger.inspection.outlook import record_outlooks  # with the ledger, which simulations do not need

    policy, serves = silo.policy, silo.purposes.serves(public.purpose)
    return record_outlooks(
        ledger,
        silo.budgets,
        public,
        policy.allowance(public),
        policy.lifetime_delta,
        silo.planner,
        None if serves.all() else serves,
    )


def silo_outlook(silo: Silo, public: PublicPlan) -> Outlook | None:
    """The same in numbers; None if the silo's account is not a ledger."""
    from rpdp.ledger import Ledger

    ledger = silo.account
    if not isinstance(ledger, Ledger):
        return None
    return silo_record_outlooks(silo, ledger, public).summary(silo.name, runs_allowed(silo))


def runs_allowed(silo: Silo) -> int:
    """How many more runs the silo's policy admits."""
    return max(silo.policy.max_runs - sum(not run.is_over for run in silo.account.status().runs), 0)
