"""What a silo checks before it admits a run. Every check uses public settings and the silo's own configuration.

Whatever is refused here has cost nothing: nothing is reserved before all of it has passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.errors import BudgetError, InputError, PlanError, PrivacyRefusal, Reason
from rpdp.federation.fingerprint import model_fingerprint
from rpdp.planning import states_its_costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from rpdp.budgets import AccountKind, BudgetTable
    from rpdp.federation.silo import Silo
    from rpdp.planning import Allowances, PublicPlan, SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training import Records


def require_kind(silo: Silo, randomness: Randomness) -> None:
    """Refuse to mix simulation and production, and a real run on any device but the CPU."""
    if randomness.is_simulation != silo.account.is_simulation:
        kinds = ("production", "simulation")
        raise PrivacyRefusal(
            f"silo {silo.name}: {kinds[randomness.is_simulation]} randomness with a "
            f"{kinds[silo.account.is_simulation]} account; seeded runs are simulations and protect nobody, and "
            "real runs need secure randomness and a production ledger"
        )
    if silo.device.type != "cpu" and not silo.account.is_simulation:
        raise PrivacyRefusal(
            f"silo {silo.name}: device {silo.device} is for simulations; use the CPU for a real run, because there "
            "no record can stop it"
        )


def require_same_code(silo: Silo, public: PublicPlan, module: nn.Module | None) -> None:
    """Refuse a plan for another model, or for tables of another schema, than this silo has."""
    own = None if module is None else model_fingerprint(module)
    if public.model_fingerprint not in (None, own):
        raise PrivacyRefusal(
            f"silo {silo.name}: the plan is for another model than this silo has; use the same model on both sides",
            Reason.MODEL,
        )
    if module is None and public.purpose != "statistics":
        raise PrivacyRefusal(f"silo {silo.name}: a run of {public.purpose} needs a model; give one", Reason.MODEL)
    if public.schema_fingerprint != silo.schema_fingerprint:
        raise PrivacyRefusal(
            f"silo {silo.name}: the plan is for tables of schema {_short(public.schema_fingerprint)}, but its own "
            f"records were made by schema {_short(silo.schema_fingerprint)}; use the same schema on both sides",
            Reason.MODEL,
        )


def require_member(silo: Silo, public: PublicPlan) -> None:
    """Refuse a plan in which this silo has no weight."""
    try:
        public.weight(silo.name)
    except InputError as error:
        raise PrivacyRefusal(f"silo {silo.name}: {error}", Reason.MEMBER) from None


def require_accounts(silo: Silo, public: PublicPlan) -> None:
    """Refuse a plan for other accounts than this silo keeps: a person's accounts in all silos must fit together."""
    kept = silo.account
    if kept.silos_per_person != public.silos_per_person or public.account not in (None, kept.account):
        raise PrivacyRefusal(
            f"silo {silo.name}: the plan is for account={public.account or kept.account!r} and silos_per_person="
            f"{public.silos_per_person}, but this silo's account is {kept.account!r} with silos_per_person="
            f"{kept.silos_per_person}, for ever; nothing was reserved. All silos need the same",
            Reason.POLICY,
        )


def require_honest(silo: Silo, plan: SiloPlan, public: PublicPlan, allowed: Allowances) -> None:
    """Refuse a plan that is for other settings or records, or that states less than its true cost.

    In simulations a method may state less than it costs, because they serve to compare such methods.
    """
    if plan.public.fingerprint != public.fingerprint or not plan.ids.equals(silo.budgets.ids):
        raise PrivacyRefusal(
            f"silo {silo.name}: the planner returned a plan for other settings or other records; it must plan the "
            "public plan and the ids that it is given"
        )
    if silo.account.is_simulation:
        return
    if not states_its_costs(plan, allowed):
        raise PrivacyRefusal(
            f"silo {silo.name}: the planner states lower costs than its probabilities have; use a planner that "
            "keeps its promise, such as assign_allowed"
        )


def tabulate(public: PublicPlan, account: AccountKind, common_delta: float | None) -> None:
    """Compute everything that planning may need for any records of accounts of this kind."""
    if account == "renyi":
        for order in ORDERS[1:].tolist():
            public.divergence_curve(order).tabulate()
        return
    public.curve_at(public.delta if common_delta is None else common_delta).tabulate()
    public.delta_table.tabulate()


def matched_budgets(name: str, records: Records, budgets: BudgetTable, ids: Sequence[str] | None) -> BudgetTable:
    """Return the budgets in the order of the records, one for each."""
    if ids is None:
        if len(budgets) != len(records):
            raise PlanError(
                f"silo {name}: {len(records):,} records and {len(budgets):,} budgets; every record needs one"
            )
        return budgets
    if len(ids) != len(records):
        raise InputError(f"silo {name}: {len(ids):,} record ids for {len(records):,} records")
    try:
        return budgets.arranged(ids)
    except BudgetError as error:
        raise BudgetError(f"silo {name}: {error}") from None


def _short(fingerprint: str | None) -> str:
    return "(none)" if fingerprint is None else f"{fingerprint[:12]}…"
