"""Canary persons: several records in one silo, or one in each of several. What they reveal together is within their ε.

Each audit states its bounds with 95 % confidence; seeds are fixed, and honest bounds lie far below ε. The controls
price the records of a person one by one, and all are caught. Sum accounts with parts of δ need a table that
takes ten seconds, so most audits of several records have Rényi accounts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

import rpdp
from rpdp import BudgetTable, Schedule, Silo
from rpdp.audit import Subject, audit_silo, canary_budgets, silo_audit
from rpdp.audit.analysis import require_fixed_rounds
from rpdp.audit.canaries import Canaries
from rpdp.errors import BudgetError, InputError
from rpdp.federation import Policy
from rpdp.planning import Status
from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from tests.audit.world import audited, make_public, mutant
from tests.federation.world import make_model, make_records

if TYPE_CHECKING:
    from rpdp import PublicPlan
    from rpdp.audit import AuditResult
    from rpdp.budgets import AccountKind

GROUPS = (0.5, 2.0, 8.0)
PER_GROUP = 1_500


def audit(public: PublicPlan | None = None, **settings: Any) -> AuditResult:
    return audited(public, **{"groups": GROUPS, "per_group": PER_GROUP, "seed": 1, **settings})


def shared(account: AccountKind, silos: int) -> PublicPlan:
    return replace(make_public(), account=account, silos_per_person=silos, lifetime_delta=1e-3)


def one_by_one(canaries: Canaries, budgets: Any = None) -> BudgetTable:
    """The control: the same records, and nobody knows whose they are."""
    table = canary_budgets(canaries, budgets)
    return BudgetTable(table.ids, table.epsilon)


@pytest.mark.parametrize(("visits", "account"), [(1, "sums"), (2, "renyi"), (3, "sums"), (4, "renyi")])
def test_persons_with_up_to_four_records_are_within_their_budget(visits: int, account: AccountKind) -> None:
    result = audit(replace(make_public(), account=account), records_per_person=visits)
    assert result.passed
    assert (result.records_per_person, result.silos) == (visits, 1)
    for group in result.groups:
        assert group.probability > 0.0
        assert group.bound.epsilon <= group.allowed == group.epsilon
        assert group.least_cost <= group.epsilon
    assert result.groups[2].bound.epsilon > 1.0  # and the attack is strong enough to see something


@pytest.mark.parametrize("visits", [2, 4])
def test_without_the_split_persons_are_caught(visits: int) -> None:
    """q is that of a single record, releases conform to it, and the promise to every person is broken."""
    with mock.patch.object(silo_audit, "canary_budgets", one_by_one):
        result = audit(records_per_person=visits, per_group=6_000)
    assert result.conforms
    assert not result.passed
    assert [group.epsilon for group in result.broken] == list(GROUPS)
    assert result.groups[1].bound.epsilon > 2.0  # proven from the releases, not only by computation
    assert f"BROKEN PROMISE: persons with {visits} records, who allow ε = 0.5" in result.verdict()[0]


@pytest.mark.parametrize("account", ["sums", "renyi"])
@pytest.mark.parametrize(("silos", "view"), [(2, "steps"), (3, "rounds")])
def test_persons_in_several_silos_are_within_their_budget(account: AccountKind, silos: int, view: Any) -> None:
    result = audit(shared(account, silos), silos=silos, view=view)
    assert result.passed
    assert (result.silos, result.joined, result.rounds) == (silos, 4 * silos, 4 * silos)
    assert {test.name for test in result.tests} >= {"participation", f"participation {silos}"}
    for group in result.groups:
        assert group.probability > 0.0
        assert group.bound.epsilon <= group.allowed == group.epsilon
        assert group.least_cost <= group.epsilon


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_persons_in_more_silos_than_were_declared_are_caught(account: AccountKind) -> None:
    """The control: every silo prices the person's record as if the person were nowhere else."""
    result = audit(replace(make_public(), account=account), silos=3, per_group=6_000)
    assert result.conforms
    assert [group.epsilon for group in result.broken] == list(GROUPS)
    assert max(group.bound.epsilon / group.epsilon for group in result.groups) > 0.8
    assert "persons with 1 record in each of 3 silos, who allow ε = 0.5" in result.verdict()[0]


def test_both_at_once_with_sum_accounts_and_never_with_renyi_accounts() -> None:
    assert audit(shared("sums", 2), silos=2, records_per_person=2, groups=(2.0,)).passed
    with pytest.raises(BudgetError, match="several records of one person"):
        audit(shared("renyi", 2), silos=2, records_per_person=2, groups=(2.0,))


def test_a_build_with_a_bug_is_found_by_persons_too() -> None:
    with mutant("σ × 0.9"):
        assert not audit(replace(make_public(), account="renyi"), records_per_person=2, groups=(2.0,)).conforms


def test_persons_beside_records() -> None:
    """In the run's own model; the records' own budgets are single ones."""
    model: dict[str, Any] = {"model": make_model(), "loss": binary_loss, "records": make_records(50)}
    subject = Subject(replace(make_public(), account="renyi"), **model, budgets=np.resize([0.5, 5.0], 50))
    result = audit_silo(subject, groups=(2.0,), per_group=300, seed=1, records_per_person=3)
    assert (result.passed, result.records, result.kernel) == (True, 50, "affine")


def test_a_coin_is_refused_for_persons() -> None:
    coin = make_public(Schedule(6, 10, participation=0.5))
    for more in ({"silos": 2}, {"records_per_person": 2}):
        with pytest.raises(InputError, match="needs a fixed number of rounds"):
            audit(coin, **more)
    assert audit(coin, groups=(2.0,)).passed
    require_fixed_rounds(make_public(Schedule(6, 10, participation=1.0)))


def test_canaries_know_their_records() -> None:
    canaries = Canaries.flip((1.0, 5.0), 200, Seeded(1), records=3)
    table = canary_budgets(canaries, np.array([0.3, 0.4]))
    assert len(table) == 2 + 3 * len(canaries.members)
    assert table.subject_sizes().tolist() == [1, 1] + [3] * (3 * len(canaries.members))
    assert (table.epsilon[2:] == canaries.budgets).all()
    with pytest.raises(InputError, match="records_per_person=0"):
        Canaries.flip((1.0,), 200, Seeded(1), records=0)


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_three_hospitals_with_one_to_four_visits_a_patient(account: AccountKind) -> None:
    """ε of 0.5, 2 or 8 by patient: nobody sits out, for δ or anything else, and every visit has the patient's part."""
    public = replace(make_public(Schedule(4, 10, participations=4)), account=account)
    silos, places = [], 30
    for number, name in enumerate("abc"):
        visits = [(patient, visit) for patient in range(places) for visit in range(1 + (patient + number) % 4)]
        ids = [f"{name}{patient}-{visit}" for patient, visit in visits]
        epsilon = [GROUPS[patient % 3] for patient, _ in visits]
        table = BudgetTable(ids, epsilon, subjects=[f"{name}{patient}" for patient, _ in visits])
        kept = rpdp.ledger.MemoryAccount(len(table), account=account)
        silos.append(Silo(name, make_records(len(table), number), table, policy=Policy.of(public), account=kept))
    result = rpdp.simulate(make_model(), binary_loss, silos, public, seed=3)
    for silo in silos:
        plan, sizes = result.silos[silo.name].plan, silo.budgets.subject_sizes()
        assert not (plan.status == Status.DELTA_TOO_SMALL).any()
        assert plan.left_out == 0
        assert set(sizes.tolist()) == {1, 2, 3, 4}
        for allowed in GROUPS:  # the more visits, the less each may cost
            mine = silo.budgets.epsilon == allowed
            by_visits = [plan.q[mine & (sizes == count)] for count in (1, 2, 3, 4)]
            assert all(more.max() < fewer.min() for fewer, more in pairwise(by_visits))


def test_an_audit_of_persons_repeats() -> None:
    again = partial(audit, replace(make_public(), account="renyi"), records_per_person=2, groups=(2.0,), per_group=300)
    assert replace(again(), seconds=0.0) == replace(again(), seconds=0.0)
