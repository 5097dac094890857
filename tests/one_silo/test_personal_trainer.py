"""A loop of one's own: the same draws, noise and charges as a federation, and no way around a private step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from rpdp import BudgetTable, PersonalTrainer, Records, write_report
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy, Silo, simulate
from rpdp.ledger import Ledger, StewardKey
from rpdp.one_silo.personal_trainer import record_loss
from rpdp.planning import Recipe
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import make_ids, make_model, make_public, make_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.planning import PublicPlan

PUBLIC = make_public(4, 3, participation=0.7, recipe=Recipe(learning_rate=0.5))
POLICY = replace(Policy.of(PUBLIC), max_runs=3, lifetime_delta=0.01, max_share_per_run=0.5)
BUDGETS = BudgetTable(make_ids(30), np.tile([0.5, 1.0, 4.0], 10))


def trainer(public: PublicPlan = PUBLIC, rate: float = 0.5, **settings: Any) -> PersonalTrainer:
    model = make_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    chosen = settings or {"seed": 7}
    return PersonalTrainer(model, binary_loss, optimiser, make_records(30), BUDGETS, public, **chosen)


def real(ledger: Ledger) -> PersonalTrainer:
    return trainer(ledger=ledger, policy=POLICY, run="first")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ledger.db"
    Ledger.create(made, BUDGETS, kind="production", lifetime_delta=0.01).close()
    return made


@pytest.mark.parametrize(
    "public",
    [PUBLIC, make_public(5, 2, participations=3, recipe=Recipe(learning_rate=0.5))],
    ids=["coins", "exactly three rounds"],
)
def test_it_is_a_federation_of_one_silo(public: PublicPlan) -> None:
    mine = trainer(public)
    for batch in mine:
        mine.step(batch)
    silo = Silo("here", make_records(30), BUDGETS, policy=Policy.of(public))
    theirs = simulate(make_model(), binary_loss, [silo], public, seed=7, workers=1)
    # A server adds the change of a round to its model, which rounds once more.
    torch.testing.assert_close(mine.result.values, theirs.values, rtol=1e-6, atol=1e-6)
    view, other = mine.result.silos["here"], theirs.silos["here"]
    assert view.joined == other.joined
    assert np.array_equal(view.draws, other.draws)
    assert np.array_equal(view.plan.cost, other.plan.cost)
    assert [log.joined for log in mine.result.rounds] == [log.joined for log in theirs.rounds]


def test_another_seed_is_another_run() -> None:
    """The control of the test above."""
    runs = [trainer(seed=seed) for seed in (7, 8)]
    for run in runs:
        for batch in run:
            run.step(batch)
    assert float((runs[0].result.values - runs[1].result.values).abs().max()) > 0.01


def test_any_optimiser_and_scheduler_of_the_loop(tmp_path: Path) -> None:
    model = make_model()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(adam, step_size=1, gamma=0.5)
    mine = PersonalTrainer(model, binary_loss, adam, make_records(30), BUDGETS, PUBLIC, seed=7)
    for training_round in mine.rounds():
        for batch in training_round:
            mine.step(batch)
            adam.zero_grad()
        scheduler.step()
    assert "4 of 4 rounds done" in repr(mine)
    flat = torch.cat([value.detach().reshape(-1) for value in model.parameters()])
    assert torch.equal(flat, mine.result.values)
    write_report(mine.result, tmp_path / "report.html")


def skip_a_batch(mine: PersonalTrainer) -> None:
    for number, batch in enumerate(mine):
        if number != 1:
            mine.step(batch)


def train_as_before(mine: PersonalTrainer) -> None:
    """A loop that was ported by half: its own gradient is still there."""
    for batch in mine:
        mine.step(batch)
        flat = mine._flat
        binary_loss(flat.module(*batch.records.inputs), batch.records.targets).sum().backward()  # type: ignore[no-untyped-call]
        mine._optimiser.step()


def step_twice(mine: PersonalTrainer) -> None:
    for batch in mine:
        mine.step(batch)
        mine.step(batch)


def leave_a_round(mine: PersonalTrainer) -> None:
    for training_round in mine.rounds():
        for batch in training_round:
            mine.step(batch)
            break


def train_on_the_first_batch_only(mine: PersonalTrainer) -> None:
    """Before any private step was taken, so that there is none since which the model could have changed."""
    batch = next(iter(mine))
    mine._flat.values.data.add_(float(batch.positions.sum()) + 1.0)
    mine.step(batch)


def change_after_the_last_step(mine: PersonalTrainer) -> None:
    for training_round in mine.rounds():
        for batch in training_round:
            mine.step(batch)
        mine._flat.values.data.add_(1.0)


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (skip_a_batch, "left without its step"),
        (train_as_before, "changed since the last private step"),
        (train_on_the_first_batch_only, "changed since the last private step"),
        (step_twice, "exactly once"),
        (leave_a_round, "left|batches left"),
        (change_after_the_last_step, "changed since the last private step"),
    ],
)
def test_there_is_no_way_around_a_private_step(loop: Callable[[PersonalTrainer], None], said: str) -> None:
    with pytest.raises(PrivacyRefusal, match=said):
        loop(trainer(make_public(3, 3)))


def test_nothing_but_a_step_reaches_the_last_update_either() -> None:
    with pytest.raises(PrivacyRefusal, match="changed since the last private step"):
        change_after_the_last_step(trainer(make_public(1, 1)))


def test_the_result_of_a_changed_model_is_refused() -> None:
    mine = trainer(make_public(1, 1))
    train_by_rounds(mine, 1)
    assert mine.result.rounds[0].joined == ("here",)
    mine._flat.values.data.add_(1.0)
    with pytest.raises(PrivacyRefusal, match="changed since the last private step"):
        _ = mine.result


def test_a_round_that_was_refused_is_never_finished() -> None:
    """Not even by a loop that catches the refusal and goes on with the next round."""
    mine = trainer(make_public(3, 3))
    first = mine.next_round()
    with pytest.raises(PrivacyRefusal, match="left without its step"):
        list(first)
    with pytest.raises(PrivacyRefusal, match="batches left"):
        mine.next_round()
    assert mine.result.rounds == ()
    with pytest.raises(InputError, match="no round is left"):
        mine.next_round()


def train_by_rounds(mine: PersonalTrainer, rounds: int) -> list[int]:
    """A loop over epochs, as with a data loader; returns how many batches each has."""
    sizes = []
    for _ in range(rounds):
        sizes.append(0)
        for batch in mine.next_round():
            mine.step(batch)
            sizes[-1] += 1
    return sizes


def test_a_loop_over_epochs_takes_round_by_round() -> None:
    public = make_public(5, 2, participations=3, recipe=Recipe(learning_rate=0.5))
    mine, other = trainer(public), trainer(public)
    sizes = train_by_rounds(mine, 5)
    for batch in other:
        other.step(batch)
    assert sorted(sizes) == [0, 0, 2, 2, 2]  # two rounds are sat out
    assert [2 * len(log.joined) for log in mine.result.rounds] == sizes
    assert torch.equal(mine.result.values, other.result.values)
    with pytest.raises(InputError, match="5 of 5 rounds done"):
        mine.next_round()


@pytest.mark.parametrize("columns", [1, 3])
def test_a_loss_that_averages_is_taken_record_by_record(columns: int) -> None:
    outputs, targets = torch.randn(6, columns), torch.randn(6, columns)
    each = record_loss(nn.MSELoss())(outputs, targets)
    assert each.shape == (6,)
    torch.testing.assert_close(each.mean(), nn.MSELoss()(outputs, targets))
    torch.testing.assert_close(each[2], nn.MSELoss()(outputs[2], targets[2]))
    assert record_loss(nn.CrossEntropyLoss())(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).shape == (0,)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(reduction="sum"), nn.CrossEntropyLoss(torch.ones(2))])
def test_other_losses_of_a_batch_stay_refused(loss: nn.Module) -> None:
    """The weighted mean is divided by the weights that were drawn."""
    model = nn.Linear(3, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    records = Records.of(torch.randn(30, 3), torch.zeros(30, dtype=torch.long))
    with pytest.raises(InputError, match="one value per record"):
        PersonalTrainer(model, loss, optimiser, records, BUDGETS, PUBLIC, seed=7)


def test_a_real_run_is_charged_before_anything_is_drawn(path: Path) -> None:
    with Ledger.open(path) as ledger:
        mine = real(ledger)
        assert ledger.status().runs[0].announced == 0
        announced = []
        for training_round in mine.rounds():
            announced.append((training_round.number, ledger.status().runs[0].announced))
            for batch in training_round:
                mine.step(batch)
    assert all(number == charged for number, charged in announced)
    with Ledger.read(path) as ledger:
        assert ledger.verify().is_good
        assert ledger.status().runs[0].announced == 4
        assert ledger.status().runs[0].released == ledger.status().runs[0].joined


def test_an_own_loop_keeps_to_the_stewards_limits(path: Path) -> None:
    """A script states what it likes; the file beside the ledger is the steward's."""
    Path(f"{path}.policy.toml").write_text("max_share_per_run = 0.01\nmin_noise_multiplier = 3.5\n")
    with Ledger.open(path) as ledger:
        with pytest.raises(PrivacyRefusal, match=r"noise_multiplier=.* \(policy: at least 3.5\)"):
            real(ledger)
        Path(f"{path}.policy.toml").write_text("max_share_per_run = 0.01\n")
        mine = real(ledger)
        assert ledger.balances(BUDGETS.ids).share_used.max() <= 0.01
        assert mine.plan.q.max() > 0.0


def test_it_charges_what_a_federation_charges(path: Path, tmp_path: Path) -> None:
    from rpdp.federation import run_production

    other = tmp_path / "other.db"
    Ledger.create(other, BUDGETS, kind="production", lifetime_delta=0.01).close()
    with Ledger.open(path) as ledger:
        mine = real(ledger)
        for batch in mine:
            mine.step(batch)
        left = ledger.left(BUDGETS, 0.01).amount
    with Ledger.open(other) as ledger:
        silo = Silo("here", make_records(30), BUDGETS, policy=POLICY, account=ledger)
        run_production(make_model(), binary_loss, [silo], PUBLIC, run="first", checkpoint=tmp_path / "server")
        assert np.array_equal(left, ledger.left(BUDGETS, 0.01).amount)


class Died(Exception):
    """As if the process had died."""


@pytest.mark.parametrize("steps", [0, 1, 3, 4])
def test_a_run_goes_on_after_its_finished_rounds(path: Path, steps: int) -> None:
    public = make_public(3, 3, recipe=Recipe(learning_rate=0.5))
    policy = replace(POLICY, max_participation=1.0, max_local_steps=3)

    def opened(ledger: Ledger) -> PersonalTrainer:
        return trainer(public, ledger=ledger, policy=policy, run="first")

    values = None
    with suppress(Died), Ledger.open(path) as ledger:
        mine = opened(ledger)
        for number, batch in enumerate(mine):
            if number == 3:
                values = mine.result.values
            if number == steps:
                raise Died
            mine.step(batch)
    with Ledger.open(path) as ledger:
        mine = opened(ledger)
        announced = ledger.status().runs[0].announced
        assert announced == (1 if steps < 3 else 2)
        # The interrupted round is sat out: its change is not in the model.
        expected = torch.zeros_like(mine.result.values) if values is None else values
        start = torch.cat([value.detach().reshape(-1) for value in make_model().parameters()])
        assert torch.allclose(mine.result.values, start if values is None else expected, atol=1e-6)
        for batch in mine:
            mine.step(batch)
        assert [log.round for log in mine.result.rounds] == [1, 2, 3]
        assert ledger.verify().is_good
        assert ledger.status().runs[0].announced == 3


def test_a_withdrawn_record_is_not_drawn_from_the_next_step_on(path: Path) -> None:
    generous = 2
    with Ledger.open(path) as ledger:
        mine = trainer(
            make_public(1, 60, noise_multiplier=3.0, recipe=Recipe(learning_rate=0.5)),
            ledger=ledger,
            policy=replace(POLICY, max_local_steps=60, max_participation=1.0, max_share_per_run=1.0),
            run="first",
        )
        drawn = []
        for number, batch in enumerate(mine):
            drawn.append(generous in batch.positions)
            mine.step(batch)
            if number == 29:
                ledger.withdraw([f"r{generous}"])
    assert any(drawn[:30])
    assert not any(drawn[30:])


def test_what_is_missing_or_wrong_is_said_before_anything_is_held(path: Path) -> None:
    with pytest.raises(InputError, match="exactly one of them"):
        trainer(seed=None)
    with Ledger.open(path) as ledger:
        with pytest.raises(InputError, match="exactly one of them"):
            trainer(seed=1, ledger=ledger)
        with pytest.raises(InputError, match="needs policy"):
            trainer(ledger=ledger, run="first")
        with pytest.raises(InputError, match="run="):
            trainer(ledger=ledger, policy=POLICY)
        other = torch.optim.SGD(make_model().parameters(), lr=1.0)
        with pytest.raises(InputError, match="parameters of this model"):
            PersonalTrainer(
                make_model(), binary_loss, other, make_records(30), BUDGETS, PUBLIC,
                ledger=ledger, policy=POLICY, run="first",
            )  # fmt: skip
        model = make_model()
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        with pytest.raises(InputError, match="one value per record"):
            PersonalTrainer(
                model, lambda out, y: binary_loss(out, y).mean(), optimiser, make_records(30), BUDGETS, PUBLIC,
                ledger=ledger, policy=POLICY, run="first",
            )  # fmt: skip
        assert not ledger.status().runs


def test_what_it_prints_shows_no_record() -> None:
    mine = trainer()
    batch = next(iter(mine))
    assert repr(batch).startswith("DrawnBatch(")
    assert "tensor" not in repr(batch)
    assert "r0" not in repr(mine)


def test_who_withdrew_from_a_run_never_rejoins_it(tmp_path: Path) -> None:
    """Not even after a re-consent between two batches. Records of the largest budget are drawn in nearly every step."""
    key, made = StewardKey(), tmp_path / "ledger.db"
    Ledger.create(made, BUDGETS, kind="production", lifetime_delta=0.01, steward=key.public).close()
    ids = make_ids(30)
    public = make_public(2, 10, participation=1.0)
    with Ledger.open(made) as ledger:
        policy = replace(Policy.of(public), max_runs=3, lifetime_delta=0.01, max_share_per_run=0.5)
        mine = trainer(public, ledger=ledger, policy=policy, run="first")
        drawn: list[int] = []
        for number, batch in enumerate(mine):
            if number == 0:
                ledger.withdraw(ids, reason="letter")
            elif number == 3:
                ledger.reconsent(ids, key=key, reason="another letter")
            if number:
                drawn += batch.positions.tolist()
            mine.step(batch)
        assert ledger.switched_off().size == 0, "the control: for a new run all of them are there"
    assert drawn == []
