"""A real run costs a record the same, whichever way it is made: study file, own loop, estimator or agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp import BudgetTable, PersonalClassifier, PersonalTrainer, PublicPlan
from rpdp.federation import Policy
from rpdp.ledger import Ledger
from rpdp.tasks.models.losses import binary_loss
from tests.deployment.agent.scene import MODEL, RUN, Making, admission, announcement, opened, told
from tests.federation.world import make_ids, make_model, make_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.studies.steward import Steward

BUDGETS = (0.3, 1.0, 1.0, 5.0)
RECORDS, DELTA = 40, 1e-2
LIMITS: dict[str, Any] = {"max_runs": 3, "lifetime_delta": DELTA, "max_share_per_run": 0.6}
SCHEDULE = [
    ("schedule.participation", None), ("schedule.participations", "3"), ("privacy.noise_multiplier", None),
    ("privacy.max_epsilon", "10.0"), ("privacy.accountant", '"pld"'), ("privacy.share", "0.5"),
    ("policy.lifetime_delta", "1e-2"),
]  # fmt: skip


def table(silo: str = "r") -> BudgetTable:
    ids = make_ids(RECORDS) if silo == "r" else [f"{silo}-{row}" for row in range(RECORDS)]
    return BudgetTable(ids, np.resize(BUDGETS, RECORDS))


def booked(ledger: Ledger, held: BudgetTable) -> NDArray[np.float64]:
    """What the run left of every record: ε, δ and the order of its account."""
    assert ledger.verify().is_good
    assert [(run.announced, run.joined) for run in ledger.status().runs] == [(3, (1, 2, 3))]
    left = ledger.left(held, DELTA)
    return np.stack([left.amount, left.delta, left.order])


def new(path: Path, held: BudgetTable) -> Ledger:
    Ledger.create(path, held, kind="production", lifetime_delta=DELTA).close()
    return Ledger.open(path)


def by_study(steward: Steward, *changes: Any) -> tuple[PublicPlan, NDArray[np.float64]]:
    steward.creates("--lifetime-delta", "1e-2", budgets=BUDGETS)
    assert steward.types("train", steward.writes(*SCHEDULE, *changes)) == 0, steward.err
    with Ledger.read(steward.home / "a" / "ledger.db") as ledger:
        found = booked(ledger, table("a"))
    return PublicPlan.from_json(Path("study/spring/public-plan.json").read_text(encoding="utf-8")), found


def by_trainer(home: Path, public: PublicPlan) -> NDArray[np.float64]:
    with new(home / "trainer.db", table()) as ledger:
        model = make_model()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = replace(Policy.of(public), **LIMITS)
        mine = PersonalTrainer(
            model, binary_loss, optimiser, make_records(RECORDS), table(), public, ledger=ledger, policy=policy, run=RUN
        )
        for batch in mine:
            mine.step(batch)
        return booked(ledger, table())


def by_estimator(home: Path, public: PublicPlan) -> NDArray[np.float64]:
    settings: dict[str, Any] = {
        "declared_target": [0, 1], "feature_ranges": [(-4.0, 4.0)] * 4, "declared_budgets": BUDGETS,
        "declared_records": RECORDS, "rounds": 3, "local_steps": 2, "share": 0.5, "delta": public.delta,
    }  # fmt: skip
    held = make_records(RECORDS)
    with new(home / "estimator.db", table()) as ledger:
        policy = replace(Policy.of(public), min_learning_rate=0.01, **LIMITS)  # its optimiser has a rate of its own
        model = PersonalClassifier(**settings, ledger=ledger, policy=policy, run=RUN)
        model.fit(held.inputs[0].numpy(), held.targets.numpy(), budgets=table())
        same = model.result_.public
        assert (same.schedule, same.share, same.accountant) == (public.schedule, public.share, public.accountant)
        assert same.noise_multiplier == public.noise_multiplier
        return booked(ledger, table())


def by_agent(home: Path, public: PublicPlan) -> NDArray[np.float64]:
    making = Making(public, records=make_records(RECORDS), epsilon=BUDGETS, policy=replace(Policy.of(public), **LIMITS))
    with opened(home, making) as agent:
        assert told(agent, admission(public)).kind == "admitted"
        for number in (1, 2, 3):
            assert told(agent, announcement(public, number)).kind == "update"
        account: Any = agent.silo.account
        return booked(account, table())


def test_study_file_trainer_estimator_and_agent_book_the_same(steward: Steward) -> None:
    public, expected = by_study(steward)
    here = replace(public, weights=1.0, model_fingerprint=MODEL)
    assert (expected[0] < np.resize(BUDGETS, RECORDS)).all()
    for way in (by_trainer, by_estimator, by_agent):
        found = way(steward.home, here)
        assert np.array_equal(found, expected), way.__name__


def test_another_plan_books_something_else(steward: Steward) -> None:
    """The control: half of the share is not the same."""
    public, expected = by_study(steward, ("privacy.share", "0.2"))
    here = replace(public, weights=1.0, model_fingerprint=MODEL)
    assert np.array_equal(by_trainer(steward.home, here), expected)
    for other in (replace(here, share=0.5), replace(here, noise_multiplier=2 * here.noise_multiplier)):
        home = steward.home / f"{other.share}-{other.noise_multiplier}"
        home.mkdir()
        assert not np.array_equal(by_agent(home, other), expected)
