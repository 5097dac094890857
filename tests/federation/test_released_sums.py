"""Runs with a request on one machine: repeatable in simulation; on ledgers, charged, stored and the same again."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import stats

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy, ReleasedSums, Silo, release_sums, run_production
from rpdp.federation.heads import read_heads
from rpdp.ledger import Ledger
from rpdp.planning import MeasureSpec, Request
from rpdp.tasks.models.losses import binary_loss
from tests.federation.requests import TWO, Bins, make_asked, request_silo
from tests.federation.world import chosen, make_ids, make_model, make_public, make_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rpdp.planning import PublicPlan

NAMES = ("north", "south")
ASKED = make_asked(3, noise_multiplier=2.0)
TRAINED = make_public(2, 2)
HELD = np.arange(30) % 3 == 0
POLICY = replace(
    Policy.of(TRAINED), max_runs=9, max_rounds=9, lifetime_delta=0.01, max_share_per_run=0.3, max_cells=100
)


def simulated(seed: int = 1, public: PublicPlan = ASKED, count: int = 12) -> ReleasedSums:
    return release_sums(public, [request_silo(name, public, count) for name in NAMES], seed=seed)


class TestSimulation:
    def test_it_repeats_and_another_seed_does_not(self) -> None:
        first, again, other = simulated(), simulated(), simulated(2)
        for name in NAMES:
            np.testing.assert_array_equal(first.by_silo[name], again.by_silo[name])
            assert (first.by_silo[name] != other.by_silo[name]).all()
        assert (first.by_silo["north"] != first.by_silo["south"]).all()

    def test_every_round_and_every_request_has_noise_of_its_own(self) -> None:
        wide = Request("everyone", (MeasureSpec("histogram", 4), MeasureSpec("count", 1)))
        first, other = simulated().sums, simulated(public=replace(ASKED, request=wide)).sums
        assert len(np.unique(np.vstack([first, other]))) == first.size + other.size

    def test_sums_are_added_over_silos(self) -> None:
        found = simulated()
        assert found.silos == NAMES
        assert found.by_silo["north"].shape == (3, 5)
        np.testing.assert_array_equal(found.sums, found.by_silo["north"] + found.by_silo["south"])
        np.testing.assert_array_equal(found.answered, [2, 2, 2])
        np.testing.assert_allclose(found.noise_std, 2.0 * TWO.norm * np.sqrt(2.0))

    @pytest.mark.parametrize(("factor", "conforms"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
    def test_sums_have_the_noise_that_is_stated(self, factor: float, conforms: bool) -> None:
        """Against the law of the plan, so that noise of another plan is noticed (the control)."""
        public = make_asked(400, noise_multiplier=2.0)
        silo = request_silo("a", public)
        silo.planner = chosen(1.0)
        found = release_sums(replace(public, noise_multiplier=2.0 * factor), [silo], seed=1)
        noise = found.by_silo["a"] - [12.0, 3.0, 3.0, 3.0, 3.0]
        p_value = stats.kstest(noise.ravel() / (2.0 * public.clip_norm), "norm").pvalue
        assert (p_value > 1e-6) == conforms

    def test_rounds_without_answers_are_no_zeros(self) -> None:
        silent = np.full((3, 5), np.nan)
        found = ReleasedSums("r", ASKED, {"a": silent, "b": np.vstack([silent[:2], np.ones((1, 5))])}, None)
        np.testing.assert_array_equal(found.answered, [0, 0, 1])
        assert np.isnan(found.sums[:2]).all()
        np.testing.assert_array_equal(found.sums[2], np.ones(5))

    def test_sums_are_kept_in_a_file(self, tmp_path: Path) -> None:
        found = simulated()
        found.by_silo["south"][1] = np.nan
        found.write(tmp_path / "sums.json")
        read = ReleasedSums.read(tmp_path / "sums.json")
        assert (read.run, read.public, read.seed) == (found.run, found.public, found.seed)
        for name in NAMES:
            np.testing.assert_array_equal(read.by_silo[name], found.by_silo[name])
        text = (tmp_path / "sums.json").read_text(encoding="utf-8")
        for broken in (
            "{}",
            "x",
            text.replace("rpdp-sums/1", "rpdp-sums/9"),
            text.replace('"south": [', '"south": [null, '),
        ):
            (tmp_path / "broken.json").write_text(broken, encoding="utf-8")
            with pytest.raises(InputError, match="these are no released sums"):
                ReleasedSums.read(tmp_path / "broken.json")

    def test_an_evaluation_announces_the_model(self) -> None:
        public = make_asked(2, purpose="evaluation")
        source = Bins(12)
        silo = request_silo("a", public, source=source, held_out=np.ones(12, dtype=bool))
        model = make_model()
        release_sums(public, [silo], model=model, seed=1)
        given = [torch.full((5,), float(number)) for number in (1, 2)]
        release_sums(public, [silo], model=model, values=given, seed=2)
        own = torch.cat([part.detach().reshape(-1) for part in model.parameters()])
        for seen, expected in zip(source.values, [own, own, *given], strict=True):
            torch.testing.assert_close(seen, expected)

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"public": TRAINED}, "public has no request"),
            ({"seed": None}, "a real run needs run"),
            ({"seed": None, "run": "r"}, "a real run needs run"),
            ({"model": make_model()}, "statistics announce nothing"),
            ({"public": make_asked(purpose="evaluation")}, "model is missing"),
            (
                {"public": make_asked(2, purpose="evaluation"), "model": make_model(), "values": [torch.zeros(5)]},
                "values has 1 models for 2 rounds",
            ),
        ],
    )
    def test_what_is_missing_is_named(self, settings: dict[str, object], expected: str) -> None:
        given = {"public": ASKED, "silos": [request_silo("a", ASKED)], "seed": 1, **settings}
        with pytest.raises(InputError, match=expected):
            release_sums(**given)  # type: ignore[arg-type]


@contextmanager
def silos(folder: Path) -> Iterator[list[Silo]]:
    """Two silos on their ledgers, which are made at the first call and opened at later ones."""
    with ExitStack() as stack:
        made = []
        for name in NAMES:
            path, budgets = folder / f"{name}.db", BudgetTable(make_ids(30, name), np.full(30, 20.0))
            if path.exists():
                ledger = Ledger.open(path)
            else:
                ledger = Ledger.create(path, budgets, kind="production", lifetime_delta=0.01, account="sums")
            account = stack.enter_context(ledger)
            made.append(request_silo(name, ASKED, 30, held_out=HELD, policy=POLICY, account=account))
        yield made


def release(made: list[Silo], folder: Path, run: str, public: PublicPlan = ASKED) -> ReleasedSums:
    model = make_model() if public.purpose == "evaluation" else None
    return release_sums(public, made, model=model, run=run, heads=folder / "heads.json")


def all_verified(folder: Path) -> bool:
    """Whether the ledgers are good, as `verify` finds from their raw events."""
    with silos(folder) as made:
        return all(silo.account.verify().is_good for silo in made)  # type: ignore[attr-defined]


class TestProduction:
    def test_three_purposes_on_one_ledger(self, tmp_path: Path) -> None:
        evaluated = make_asked(purpose="evaluation", noise_multiplier=2.0)
        with silos(tmp_path) as made:
            release(made, tmp_path, "statistics")
            run_production(
                make_model(),
                binary_loss,
                made,
                TRAINED,
                run="training",
                checkpoint=tmp_path,
                heads=tmp_path / "heads.json",
            )
            found = release(made, tmp_path, "evaluation", evaluated)
            plans = {run: made[0].account.resume(run, made[0].budgets.ids) for run in ("training", "evaluation")}
            left = made[0].account.left(made[0].budgets, 0.01).amount
            held = [read_heads(tmp_path / "heads.json")[name] for name in NAMES]
            assert held == [silo.account.public_head() for silo in made]
        assert found.seed is None
        assert (plans["training"].cost[HELD] == 0.0).all()
        assert (plans["evaluation"].cost[~HELD] == 0.0).all()
        assert (plans["training"].cost[~HELD] > 0.0).all()
        assert (left < 20.0).all()
        assert all_verified(tmp_path)

    def test_after_an_interruption_finished_rounds_are_the_same_and_the_broken_one_stays_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """South charges round 2 and then fails to store it. North had released it."""
        with silos(tmp_path) as made, monkeypatch.context() as patched:
            store, kept = Ledger.store, dict[tuple[str, int], bytes]()

            def fails(self: Ledger, run: str, number: int, payload: bytes) -> None:
                if self is made[1].account and number == 2:
                    raise KeyboardInterrupt
                store(self, run, number, payload)
                kept[made[0].name if self is made[0].account else made[1].name, number] = payload

            patched.setattr(Ledger, "store", fails)
            with pytest.raises(KeyboardInterrupt):
                release(made, tmp_path, "r")
        with silos(tmp_path) as made:
            found = release(made, tmp_path, "r")
            again = release(made, tmp_path, "r")
        for (name, number), payload in kept.items():
            numbers = np.frombuffer(payload[-5 * 8 :], dtype="<f8")
            np.testing.assert_array_equal(found.by_silo[name][number - 1], numbers)
        assert sorted(kept) == [("north", 1), ("north", 2), ("south", 1)]
        np.testing.assert_array_equal(found.answered, [2, 1, 2])
        assert np.isnan(found.by_silo["south"][1]).all()
        for name in NAMES:
            np.testing.assert_array_equal(found.by_silo[name], again.by_silo[name])
        assert all_verified(tmp_path)

    def test_a_silo_that_refuses_costs_nobody_anything(self, tmp_path: Path) -> None:
        with silos(tmp_path) as made:
            made[1] = Silo(
                "south", make_records(30), made[1].budgets, policy=POLICY, account=made[1].account,
                record_ids=make_ids(30, "south"),
            )  # fmt: skip
            with pytest.raises(PrivacyRefusal, match="purpose='statistics' is not one that it answers"):
                release(made, tmp_path, "r")
            assert (made[0].account.left(made[0].budgets, 0.01).amount == 20.0).all()

    def test_a_ledger_that_was_rolled_back_is_refused(self, tmp_path: Path) -> None:
        with silos(tmp_path) as made:
            release(made, tmp_path, "r")
        for file in tmp_path.glob("north.db*"):
            if file.is_file():
                file.unlink()
        for directory in tmp_path.glob("north.db*"):
            directory.rename(tmp_path / "gone")
        with silos(tmp_path) as made, pytest.raises(PrivacyRefusal):
            release(made, tmp_path, "second")

    def test_a_seed_never_meets_a_production_ledger(self, tmp_path: Path) -> None:
        with silos(tmp_path) as made, pytest.raises(PrivacyRefusal, match="simulation randomness with a production"):
            release_sums(ASKED, made, seed=1)
