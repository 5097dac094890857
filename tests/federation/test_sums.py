"""Silos that answer requests: who takes part with what weight, what is refused, and what a failing record costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.federation import Policy, Silo, Update
from rpdp.federation.sums import PIECE, pieces_by_position
from rpdp.ledger import MemoryAccount
from rpdp.planning import MeasureSpec, PublicPlan, Request, Status
from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import BadRecordWarning
from tests.federation.requests import TWO, Bins, make_asked, request_silo
from tests.federation.world import (
    FEATURES,
    RUN,
    announced,
    chosen,
    make_ids,
    make_model,
    make_public,
    make_records,
)

if TYPE_CHECKING:
    from rpdp.federation import Announcement

ASKED = make_asked()
NOTHING = torch.zeros(0)


def ask(silo: Silo, public: PublicPlan, run: str = RUN) -> np.ndarray:
    """Admit the run and return the sums of its first round, without their noise but for the grid."""
    model = None if public.purpose == "statistics" else make_model()
    silo.admit(run, public, model, None, Quiet(1))
    update = silo.answer(replace(said(public), run=run))
    assert isinstance(update, Update)
    return update.change.numpy()


class Quiet(Seeded):
    """Randomness whose noise is negligible, so that sums can be seen."""

    def child(self, *key: str | int) -> Quiet:
        return self

    def fill_gaussian(self, out: np.ndarray, std: float) -> None:
        out[:] = 0.0


def said(public: PublicPlan, number: int = 1) -> Announcement:
    values = NOTHING if public.purpose == "statistics" else torch.zeros(FEATURES + 1)
    return announced(public, number, values=values)


class TestWeights:
    def test_everybody_who_can_pay_counts_in_full(self) -> None:
        np.testing.assert_allclose(ask(request_silo("a", ASKED), ASKED), [12, 3, 3, 3, 3], atol=1e-5)

    def test_contributions_are_multiplied_by_the_weight(self) -> None:
        public = make_asked(request=Request("representative", TWO.measures))
        silo = request_silo("a", public)
        silo.planner = chosen(np.tile([1.0, 0.5, 0.25, 0.0], 3))
        np.testing.assert_allclose(ask(silo, public), [5.25, 3, 1.5, 0.75, 0], atol=1e-5)

    def test_weights_of_the_planner_cost_what_records_allow_and_no_more(self) -> None:
        """The least weight belongs to the smallest budget; a Gaussian of multiplier s/w is what it pays for."""
        public = make_asked(request=Request("representative", TWO.measures), noise_multiplier=0.5)
        silo = request_silo("a", public, epsilon=np.tile([0.1, 0.5, 2.0, 20.0], 3))
        ask(silo, public)
        weights = silo.plan.q[:4]
        assert (np.diff(weights) > 0.0).all()
        assert weights[3] == 1.0
        assert (silo.plan.run_epsilon <= silo.budgets.epsilon).all()
        assert (silo.plan.run_epsilon[:3] > 0.95 * silo.budgets.epsilon[:3]).all()

    def test_a_record_counts_in_its_active_rounds_only(self) -> None:
        public = make_asked(2)
        silo = request_silo("a", public)
        silo.planner = chosen(1.0, active_rounds=np.tile([1, 2], 6))
        assert ask(silo, public)[0] == pytest.approx(12, abs=1e-5)
        second = silo.answer(said(public, 2))
        assert second is not None
        assert second.change[0] == pytest.approx(6, abs=1e-5)

    def test_who_withdraws_is_left_out_from_the_next_piece_on(self) -> None:
        account = MemoryAccount(12)
        silo = request_silo("a", ASKED, account=account)
        account.switch_off(np.array([0, 4]))
        np.testing.assert_allclose(ask(silo, ASKED), [10, 1, 3, 3, 3], atol=1e-5)
        source = Bins(PIECE + 4)
        silo = request_silo("b", ASKED, PIECE + 4, source=source, account=(account := MemoryAccount(PIECE + 4)))
        silo.admit(RUN, ASKED, None, None, Quiet(1))
        asked = source.cells

        def withdraw_meanwhile(request: Request, values: torch.Tensor, rows: np.ndarray) -> object:
            account.switch_off(np.array([0, PIECE + 1]))
            return asked(request, values, rows)

        source.cells = withdraw_meanwhile  # type: ignore[method-assign, assignment]
        update = silo.answer(said(ASKED))
        assert update is not None
        assert update.change[0] == pytest.approx(PIECE + 3, abs=1e-5)

    def test_without_records_noise_is_released(self) -> None:
        silo = request_silo("a", ASKED)
        silo.planner = chosen(0.0)
        silo.admit(RUN, ASKED, None, None, Seeded(1))
        update = silo.answer(said(ASKED))
        assert update is not None
        assert (update.change != 0.0).all()


class TestPurposes:
    HELD = np.arange(12) % 3 == 0

    def test_held_out_records_are_not_trained_on_and_reserve_nothing(self) -> None:
        public = make_public()
        silo = request_silo("a", make_asked(), held_out=self.HELD, policy=replace(Policy.of(public), max_runs=9))
        plan = silo.admit(RUN, public, make_model(), binary_loss, Seeded(1))
        assert (plan.q[self.HELD] == 0.0).all()
        assert (plan.cost[self.HELD] == 0.0).all()
        assert (plan.delta[self.HELD] == 0.0).all()
        assert (plan.status[self.HELD] == Status.OTHER_PURPOSE).all()
        assert (plan.q[~self.HELD] > 0.0).all()
        assert "kept for runs of another purpose than training" in plan.explain("a0")
        trained = silo.train(announced(public, 1)) if silo.begin(announced(public, 1)) is True else None
        assert trained is not None
        assert trained.draws[self.HELD].sum() == 0
        assert trained.draws.sum() > 0

    def test_only_held_out_records_are_evaluated(self) -> None:
        public = make_asked(purpose="evaluation")
        source = Bins(12)
        silo = request_silo("a", public, source=source, held_out=self.HELD)
        assert ask(silo, public)[0] == pytest.approx(4, abs=1e-5)
        assert (silo.plan.cost[~self.HELD] == 0.0).all()
        assert (silo.plan.status[~self.HELD] == Status.OTHER_PURPOSE).all()
        assert source.calls == [[0, 3, 6, 9]]  # those that are trained on are not even looked at
        assert source.values[0].shape == (FEATURES + 1,)

    def test_statistics_take_all(self) -> None:
        silo = request_silo("a", ASKED, held_out=self.HELD)
        assert ask(silo, ASKED)[0] == pytest.approx(12, abs=1e-5)

    def test_what_was_reserved_stays_reserved_when_the_choice_changes(self) -> None:
        public = make_public()
        account = MemoryAccount(12)
        policy = replace(Policy.of(public), max_runs=9)
        before = request_silo("a", ASKED, held_out=self.HELD, policy=policy, account=account)
        reserved = before.admit(RUN, public, make_model(), binary_loss, Seeded(1)).cost
        after = request_silo("a", ASKED, held_out=~self.HELD, policy=policy, account=account)
        plan = after.admit(RUN, public, make_model(), binary_loss, Seeded(1))
        assert (plan.q[~self.HELD] == 0.0).all()
        np.testing.assert_array_equal(plan.cost, reserved)

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"measured": {"training": Bins(12)}}, "only evaluation and statistics are measured"),
            ({"measured": {"statistics": Bins(11)}}, "has 11 of 12 records"),
            ({"measured": {"evaluation": Bins(12)}}, "evaluation needs held_out"),
            ({"held_out": np.zeros(11, dtype=bool)}, "held_out is bool of shape"),
            ({"held_out": np.zeros(12)}, "held_out is float64 of shape"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, settings: dict[str, object], expected: str) -> None:
        budgets = BudgetTable(make_ids(12), np.ones(12))
        with pytest.raises(InputError, match=expected):
            Silo("a", make_records(12), budgets, policy=Policy.of(ASKED), **settings)  # type: ignore[arg-type]


class TestRefusals:
    def refused(self, silo: Silo, public: PublicPlan, reason: Reason, expected: str) -> None:
        model = make_model() if public.model_fingerprint else None
        with pytest.raises(PrivacyRefusal, match=expected) as refusal:
            silo.admit(RUN, public, model, None, Seeded(1))
        assert refusal.value.reason == reason
        assert silo.account.status().runs == ()
        assert silo.runs == ()

    def test_a_purpose_that_the_silo_does_not_answer(self) -> None:
        evaluated = make_asked(purpose="evaluation")
        self.refused(request_silo("a", ASKED), evaluated, Reason.POLICY, "purpose='evaluation' is not one")

    def test_a_request_that_its_code_refuses(self) -> None:
        public = make_asked(request=Request("everyone", (MeasureSpec("histogram", 6),)))
        self.refused(request_silo("a", public), public, Reason.POLICY, "6 cells are not five; nothing was reserved")

    def test_a_request_that_is_too_large_for_the_policy(self) -> None:
        policy = replace(Policy.of(ASKED), max_cells=4)
        self.refused(request_silo("a", ASKED, policy=policy), ASKED, Reason.POLICY, r"cells=5 \(policy: at most 4\)")

    def test_more_noise_than_sums_can_carry(self) -> None:
        class Willing(Bins):
            def require(self, request: Request) -> None:
                pass

        public = make_asked(request=Request("everyone", (MeasureSpec("count", 1),) * 5000), noise_multiplier=1e6)
        silo = request_silo("a", public, source=Willing(12))
        self.refused(silo, public, Reason.POLICY, "the most that sums can carry")

    def test_an_evaluation_without_a_model(self) -> None:
        public = make_asked(purpose="evaluation")
        silo = request_silo("a", public, held_out=np.ones(12, dtype=bool))
        self.refused(silo, public, Reason.MODEL, "a run of evaluation needs a model")

    def test_training_without_a_model_or_a_loss(self) -> None:
        public = make_public()
        silo = request_silo("a", ASKED, policy=Policy.of(public))
        self.refused(silo, public, Reason.MODEL, "a run of training needs a model")
        with pytest.raises(InputError, match="training needs a model and a loss"):
            silo.admit(RUN, public, make_model(), None, Seeded(1))
        assert silo.account.status().runs == ()

    def test_limits_of_training_are_none_of_requests(self) -> None:
        policy = replace(Policy.of(make_public()), min_noise_multiplier=5.0, max_participation=0.1)
        request_silo("a", ASKED, policy=policy).admit(RUN, ASKED, None, None, Seeded(1))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"values": torch.zeros(1)}, Reason.SHAPE),
            ({"values": torch.zeros(0, dtype=torch.float64)}, Reason.SHAPE),
            ({"correction": NOTHING}, Reason.SHAPE),
            ({"plan": make_asked(2).fingerprint}, Reason.PLAN),
            ({"round": 2}, Reason.ROUND),
        ],
    )
    def test_only_the_announcement_of_the_plan_is_answered(self, change: dict[str, object], reason: Reason) -> None:
        silo = request_silo("a", ASKED)
        silo.admit(RUN, ASKED, None, None, Seeded(1))
        with pytest.raises(PrivacyRefusal) as refusal:
            silo.answer(replace(said(ASKED), **change))  # type: ignore[arg-type]
        assert refusal.value.reason == reason
        assert silo.announced(RUN) == 0


class TestFailures:
    def test_a_record_that_makes_the_code_raise_adds_nothing_and_the_others_all(self) -> None:
        source = Bins(12, failing=[5])
        with pytest.warns(BadRecordWarning, match="failed on a record"):
            sums = ask(request_silo("a", ASKED, source=source), ASKED)
        np.testing.assert_allclose(sums, [11, 3, 2, 3, 3], atol=1e-5)

    def test_what_failures_cost_is_bounded(self) -> None:
        source = Bins(100, failing=range(100))
        with pytest.warns(BadRecordWarning):
            sums = ask(request_silo("a", ASKED, 100, source=source), ASKED)
        assert len(source.calls) == 2 * 100 - 1
        assert np.abs(sums).max() < 1e-5

    def test_cells_for_other_records_than_asked_count_as_a_failure(self) -> None:
        class Short(Bins):
            def cells(self, request: Request, values: torch.Tensor, rows: np.ndarray) -> object:  # type: ignore[override]
                return super().cells(request, values, rows[rows != 7])

        with pytest.warns(BadRecordWarning):
            sums = ask(request_silo("a", ASKED, source=Short(12)), ASKED)
        np.testing.assert_allclose(sums, [11, 3, 3, 3, 2], atol=1e-5)

    def test_a_record_beyond_the_norm_adds_nothing(self) -> None:
        source = Bins(12, cells={3: ([0, 4, 0], [1e9, 1.0, 0.0])})
        np.testing.assert_allclose(ask(request_silo("a", ASKED, source=source), ASKED), [11, 3, 3, 3, 2], atol=1e-5)


def test_pieces_follow_positions_and_not_how_many_there_are() -> None:
    rows = np.arange(0, 3 * PIECE, 3)
    whole = [part.tolist() for part in pieces_by_position(rows)]
    assert [part[-1] // PIECE for part in whole] == [0, 1, 2]
    assert [row for part in whole for row in part] == rows.tolist()
    without = [part.tolist() for part in pieces_by_position(np.delete(rows, 5))]
    assert without[1:] == whole[1:]
    assert list(pieces_by_position(np.zeros(0, dtype=np.int64))) == []
    assert [part.tolist() for part in pieces_by_position(np.array([PIECE]))] == [[PIECE]]
