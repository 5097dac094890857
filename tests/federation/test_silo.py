"""A silo's answers to whatever is announced: charged before training, the same bytes again, or a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rpdp.errors import PrivacyRefusal
from rpdp.federation import Policy
from rpdp.federation import silo as silo_module
from rpdp.ledger import MemoryAccount
from rpdp.planning import Recipe
from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import Records
from tests.federation.world import (
    FEATURES,
    RUN,
    Spy,
    admit,
    admitted,
    announced,
    make_public,
    make_records,
    make_silo,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp import PublicPlan
    from rpdp.federation import Update

PUBLIC = make_public(rounds=6, participation=0.5)
CERTAIN = make_public(rounds=4, participation=1.0)


def payload(update: Update | None) -> bytes | None:
    return None if update is None else update.to_bytes()


def test_every_round_has_one_answer_for_ever() -> None:
    """The same bytes again for a joined round, nothing for a round sat out, in whatever order they are asked for."""
    silo = admitted("a", PUBLIC)
    first = {number: payload(silo.answer(announced(PUBLIC, number))) for number in range(1, 7)}
    assert {answer is None for answer in first.values()} == {True, False}
    for number in (3, 6, 1, 2, 5, 4, 4):
        assert payload(silo.answer(announced(PUBLIC, number))) == first[number]
    status = silo.account.status().runs[0]
    assert status.announced == 6
    assert status.joined == status.released == tuple(number for number in first if first[number] is not None)


def test_a_round_asked_again_from_another_model_gets_the_old_answer() -> None:
    """Never fresh noise, and never the old noise on another model."""
    silo = admitted("a", CERTAIN)
    before = payload(silo.answer(announced(CERTAIN, 1)))
    moved = announced(CERTAIN, 1, values=torch.ones(FEATURES + 1))
    assert payload(silo.answer(moved)) == before


def test_missed_rounds_are_charged_and_stay_sat_out() -> None:
    silo = admitted("a", CERTAIN)
    assert silo.answer(announced(CERTAIN, 3)) is not None
    assert silo.accountant.announced == 3
    assert silo.answer(announced(CERTAIN, 1)) is None
    assert silo.answer(announced(CERTAIN, 2)) is None
    assert silo.account.status().runs[0].joined == (3,)


def test_the_change_is_that_of_a_run_from_the_announced_model(spy: Spy) -> None:
    """By hand: w ← w − η · release, τ times from what was announced, whatever was trained before."""
    silo = admitted("a", CERTAIN)
    silo.answer(announced(CERTAIN, 1))
    spy.take()
    start = torch.linspace(-1, 1, FEATURES + 1)
    update = silo.answer(announced(CERTAIN, 2, values=start))
    releases = spy.take()
    assert update is not None
    assert len(releases) == 3
    np.testing.assert_allclose(update.change.numpy(), -0.1 * np.sum(releases, axis=0), rtol=1e-4, atol=1e-6)
    assert torch.equal(start, torch.linspace(-1, 1, FEATURES + 1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "other"}, "asked for run 'other'"),
        ({"plan": "0" * 64}, "with plan 000000000000…, but it was admitted"),
        ({"plan": "f" * 64}, "with plan ffffffffffff…, but it was admitted"),
        ({"plan": make_public(rounds=7, participation=0.5).fingerprint}, "nothing was released"),
        ({"round": 7}, "round 7 .* is not one of its 6 rounds"),
        ({"round": 0}, "round 0"),
        ({"round": -3}, "round -3"),
        ({"values": torch.zeros(FEATURES)}, r"shape \(4,\), but this silo's model has .* \(5,\)"),
        ({"values": torch.zeros(FEATURES + 1, 1)}, "the announced model has type torch.float32 and shape"),
        ({"values": torch.zeros(FEATURES + 1, dtype=torch.float64)}, "the announced model has type torch.float64"),
        ({"values": torch.tensor([0.0, 0.0, float("nan"), 0.0, 0.0])}, "model has numbers that are not finite"),
        ({"values": torch.tensor([0.0, 0.0, 0.0, 0.0, float("-inf")])}, "model has numbers that are not finite"),
        ({"correction": torch.zeros(FEATURES)}, "the correction has type torch.float32"),
        ({"correction": torch.zeros(FEATURES + 1, dtype=torch.float16)}, "the correction has type torch.float16"),
        ({"correction": torch.full((FEATURES + 1,), float("inf"))}, "the correction has numbers that are not finite"),
    ],
    ids=[
        "run", "plan", "another plan", "plan of another T", "round above T", "round 0", "negative round", "shape",
        "dimensions", "dtype", "NaN", "infinity", "correction shape", "correction dtype", "correction infinite",
    ],
)  # fmt: skip
def test_anything_but_the_admitted_plan_is_refused(changes: dict[str, Any], words: str) -> None:
    """And costs nothing: the round is there when it is asked for rightly."""
    silo = admitted("a", PUBLIC)
    with pytest.raises(PrivacyRefusal, match=words):
        silo.answer(announced(PUBLIC, **{"number": 1, **changes}))
    assert silo.account.status().runs[0].announced == 0
    other = admitted("a", PUBLIC)
    assert [payload(silo.answer(announced(PUBLIC, number))) for number in range(1, 7)] == [
        payload(other.answer(announced(PUBLIC, number))) for number in range(1, 7)
    ]


def test_a_round_that_is_no_whole_number_is_not_charged() -> None:
    """1.1, 1.2, … would be rounds without end."""
    silo = admitted("a", CERTAIN)
    with pytest.raises((PrivacyRefusal, TypeError)):
        silo.answer(announced(CERTAIN, 1.5))  # type: ignore[arg-type]
    assert silo.account.status().runs[0].announced == 0
    assert silo.accountant.announced == 0


class Failing:
    """A loss that stops working when it is told to."""

    def __init__(self) -> None:
        self.calls_left: int | None = None
        self.calls = 0

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise KeyboardInterrupt("stopped")  # a mere error would count as zero
        return binary_loss(output, targets)


@pytest.mark.parametrize("good_steps", [0, 1, 2])
def test_a_round_that_breaks_is_charged_and_never_trained_again(good_steps: int) -> None:
    silo, loss = make_silo("a", CERTAIN, q=1.0), Failing()
    admit(silo, CERTAIN, loss=loss)
    loss.calls_left = good_steps
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        silo.answer(announced(CERTAIN, 1))
    status = silo.account.status().runs[0]
    assert (status.announced, status.joined, status.released) == (1, (1,), ())
    assert silo.accountant.announced == 1
    loss.calls_left, loss.calls = None, 0
    assert silo.answer(announced(CERTAIN, 1)) is None
    assert loss.calls == 0
    assert silo.answer(announced(CERTAIN, 2)) is not None


def test_the_charge_is_booked_before_the_first_record_is_touched() -> None:
    silo = make_silo("a", CERTAIN, q=1.0)
    seen: list[int] = []

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        status = silo.account.status()
        seen.append(status.runs[0].announced if status.runs else -1)
        return binary_loss(output, targets)

    admit(silo, CERTAIN, loss=loss)
    seen.clear()
    silo.answer(announced(CERTAIN, 1))
    silo.answer(announced(CERTAIN, 2))
    assert seen == [1] * 3 + [2] * 3


def test_an_update_is_stored_before_it_is_released() -> None:
    class Full(MemoryAccount):
        def store(self, run: str, number: int, payload: bytes) -> None:
            raise OSError("no space left on device")

    silo = admitted("a", CERTAIN, account=Full(12))
    with pytest.raises(OSError, match="no space"):
        silo.answer(announced(CERTAIN, 1))
    assert silo.answer(announced(CERTAIN, 1)) is None


def test_a_model_that_diverges_is_not_released() -> None:
    public = make_public(normaliser=1e-3, recipe=Recipe(learning_rate=1e38))
    silo = admitted("a", public)
    with pytest.raises(PrivacyRefusal, match=r"NaN|not finite|infinite"):
        silo.answer(announced(public, 1))
    assert silo.answer(announced(public, 1)) is None


# Who is drawn


def test_a_damaged_record_adds_nothing_and_pays_all_the_same(spy: Spy) -> None:
    """Its round releases what it would release without the record, up to rounding."""
    damaged = make_records(12)
    damaged.inputs[0][3, 1] = float("nan")
    damaged.inputs[0][7, 0] = float("inf")
    silo = admitted("a", CERTAIN, records=damaged, q=1.0)
    update = silo.answer(announced(CERTAIN, 1))
    with_damage = spy.take()
    assert spy.drawn == [list(range(12))] * 3
    chances = np.ones(12)
    chances[[3, 7]] = 0.0
    without = admitted("a", CERTAIN, q=chances)
    without.answer(announced(CERTAIN, 1))
    np.testing.assert_allclose(with_damage, spy.take(), rtol=1e-5, atol=1e-7)
    assert update is not None
    assert bool(update.change.isfinite().all())
    assert (silo.accountant.spent()[[3, 7]] > 0.0).all()
    complete = admitted("a", CERTAIN, q=1.0)
    complete.answer(announced(CERTAIN, 1))
    assert np.abs(np.array(with_damage) - spy.take()).max() > 1e-2  # the control: the two records would have mattered


def test_records_are_not_drawn_after_their_last_round(spy: Spy) -> None:
    last = np.array([0, 1, 2, 3, 4] * 2)
    silo = admitted("a", CERTAIN, count=10, q=1.0, active_rounds=last)
    for number in range(1, 5):
        spy.drawn.clear()
        trained = silo.train(announced(CERTAIN, number)) if silo.begin(announced(CERTAIN, number)) is True else None
        assert trained is not None
        active = np.flatnonzero(last >= number).tolist()
        assert spy.drawn == [active] * 3
        assert trained.draws.tolist() == [3 if row in active else 0 for row in range(10)]


class Withdrawing(MemoryAccount):
    """Some records are withdrawn while a round is trained, at a chosen local step."""

    def __init__(self, records: int, at_step: int, who: list[int]) -> None:
        super().__init__(records)
        self._asked = 0
        self._at, self._who = at_step, np.array(who)

    def switched_off(self, run: str | None = None) -> NDArray[np.int64]:
        if self._asked == self._at:
            self.switch_off(self._who)
        self._asked += 1
        return super().switched_off(run)


def test_withdrawn_records_are_not_drawn_from_the_next_step_on(spy: Spy) -> None:
    silo = admitted("a", CERTAIN, count=5, q=1.0, account=Withdrawing(5, 1, [0, 3]))
    silo.answer(announced(CERTAIN, 1))
    assert spy.drawn == [[0, 1, 2, 3, 4], [1, 2, 4], [1, 2, 4]]
    spy.drawn.clear()
    silo.answer(announced(CERTAIN, 2))
    assert spy.drawn == [[1, 2, 4]] * 3


def test_the_others_are_drawn_as_if_nobody_had_withdrawn(spy: Spy) -> None:
    admitted("a", CERTAIN, count=40).answer(announced(CERTAIN, 1))
    before = list(spy.drawn)
    spy.drawn.clear()
    silo = make_silo("a", CERTAIN, count=40, account=Withdrawing(40, 0, [5, 6, 7]))
    admit(silo, CERTAIN)
    silo.answer(announced(CERTAIN, 1))
    assert spy.drawn == [[row for row in drawn if row not in (5, 6, 7)] for drawn in before]
    assert spy.drawn != before


def test_steps_and_rounds_and_silos_draw_independently(spy: Spy) -> None:
    for name in ("a", "b"):
        silo = admitted(name, CERTAIN, count=60)
        for number in range(1, 5):
            silo.answer(announced(CERTAIN, number))
    assert len(spy.drawn) == 24
    assert len({tuple(drawn) for drawn in spy.drawn}) == 24
    assert len({release.tobytes() for release in spy.released}) == 24


def test_a_silo_that_admitted_nothing_answers_nothing() -> None:
    silo = make_silo("a", CERTAIN)
    for ask in (lambda: silo.answer(announced(CERTAIN, 1)), lambda: silo.plan, lambda: silo.accountant):
        with pytest.raises(PrivacyRefusal, match="silo a: no run was admitted"):
            ask()


def test_a_cancelled_run_is_forgotten_and_no_other() -> None:
    silo = make_silo("a", CERTAIN, policy=replace(Policy.of(CERTAIN), max_runs=3))
    for other in ("before", "xylophone"):
        silo.account.reserve(other, silo.preview(other, CERTAIN), None)
    admit(silo, CERTAIN)
    silo.cancel("before")
    silo.cancel("xylophone")
    assert len(silo.plan) == 12
    assert [one.state for one in silo.account.status().runs] == ["cancelled", "cancelled", "held"]
    silo.cancel(RUN)
    assert not silo.holds(RUN)
    with pytest.raises(PrivacyRefusal, match="no run was admitted"):
        silo.begin(announced(CERTAIN, 1))


def test_a_run_that_is_admitted_again_goes_on_where_it_was() -> None:
    silo = admitted("a", CERTAIN)
    silo.answer(announced(CERTAIN, 3))
    admit(silo, CERTAIN)
    assert silo.accountant.announced == 3
    assert silo.accountant.rounds_left.tolist() == [1] * 12


def test_a_simulation_may_compare_models_that_a_real_run_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        pytest.fail("a model was tried on records")

    monkeypatch.setattr(silo_module, "require_value_independent", never)
    assert admitted("a", CERTAIN).account.is_simulation


def test_a_silo_says_how_it_clips() -> None:
    assert admitted("a", CERTAIN).kernel_name == "affine"


def test_several_inputs_and_a_float64_model() -> None:
    """The flat change has the type of the model, and a model may take several inputs."""

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2 * FEATURES, 1).double()

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            output: Tensor = self.layer(torch.cat([one, other], 1))
            return output

    rows = make_records(8)
    records = Records.of([rows.inputs[0].double(), rows.inputs[0].double()], rows.targets)
    silo = make_silo("a", CERTAIN, records=records)
    silo.admit(RUN, CERTAIN, Two(), binary_loss, Seeded(3))
    update = silo.answer(announced(CERTAIN, 1, values=torch.zeros(2 * FEATURES + 1, dtype=torch.float64)))
    assert update is not None
    assert update.change.dtype == torch.float64
    again = silo.answer(announced(CERTAIN, 1, values=torch.zeros(2 * FEATURES + 1, dtype=torch.float64)))
    assert payload(again) == payload(update)


def test_plans_of_other_settings_have_other_fingerprints() -> None:
    """The control of the refusals above: the fingerprint covers the recipe, so a server cannot change it in a run."""
    plans: list[PublicPlan] = [CERTAIN, make_public(recipe=Recipe(learning_rate=0.2)), make_public(clip_norm=2.0)]
    assert len({plan.fingerprint for plan in plans}) == 3


# The right to train


def test_only_a_charged_and_joined_round_is_trained_once_on_its_own_model() -> None:
    silo = admitted("a", CERTAIN, q=1.0)
    with pytest.raises(PrivacyRefusal, match="round 1 is not waiting to be trained"):
        silo.train(announced(CERTAIN, 1))  # never charged
    assert silo.begin(announced(CERTAIN, 1)) is True
    with pytest.raises(PrivacyRefusal, match="on this model"):
        silo.train(announced(CERTAIN, 1, values=torch.ones(FEATURES + 1)))
    with pytest.raises(PrivacyRefusal, match="asked for run"):
        silo.train(announced(CERTAIN, 1, run="other"))
    trained = silo.train(announced(CERTAIN, 1))
    with pytest.raises(PrivacyRefusal, match="was trained already"):
        silo.train(announced(CERTAIN, 1))
    assert silo.finish(trained) is trained.update
    with pytest.raises(PrivacyRefusal, match="is not one that this silo was training"):
        silo.finish(trained)


def test_only_the_update_of_this_silo_and_round_is_stored() -> None:
    silo = admitted("a", CERTAIN, q=1.0)
    assert silo.begin(announced(CERTAIN, 1)) is True
    trained = silo.train(announced(CERTAIN, 1))
    for update, words in (
        (replace(trained.update, silo="b"), "the update of silo b"),
        (replace(trained.update, round=2), "for round 2"),
        (replace(trained.update, change=trained.update.change * float("nan")), "not finite"),
        (replace(trained.update, change=torch.zeros(1)), "shape"),
    ):
        with pytest.raises(PrivacyRefusal, match=words):
            silo.finish(replace(trained, update=update))
    assert silo.finish(trained) is trained.update
