"""A simulation that was interrupted goes on to the same bits; damaged checkpoints and other runs' are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.errors import InputError
from rpdp.federation.checkpoint import NAME
from rpdp.planning import BACKBONES
from rpdp.tasks.models.losses import binary_loss
from tests.federation.references import SETTINGS
from tests.federation.simulations import MIXED, Interrupt, federation, run
from tests.federation.world import make_model, make_public, make_recipe, make_silo, outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from rpdp.federation import RoundLog


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(backbone: str, tmp_path: Path) -> None:
    recipe = replace(make_recipe(backbone, **SETTINGS[backbone]), averaged_rounds=3)
    public = make_public(5, 2, participation=0.7, recipe=recipe)
    whole = run(public)
    for after, workers in ((1, 1), (3, 2), (4, 1)):  # twice in the same run, then right before its end
        with pytest.raises(KeyboardInterrupt):
            run(public, on_round=Interrupt(after), checkpoint=tmp_path, workers=workers)
    rounds: list[RoundLog] = []
    resumed = run(public, checkpoint=tmp_path, on_round=rounds.append)
    assert [log.round for log in rounds] == [5]
    assert outcome(resumed) == outcome(whole)


def test_silos_of_a_resumed_run_are_charged_for_the_rounds_before(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(on_round=Interrupt(2), checkpoint=tmp_path)
    silos, whole = federation(MIXED), federation(MIXED)
    run(silos=silos, checkpoint=tmp_path)
    run(silos=whole)
    for one, other in zip(silos, whole, strict=True):
        assert one.accountant.announced == 5
        assert one.account.status().runs[0].joined == other.account.status().runs[0].joined


def test_an_interruption_in_the_middle_of_a_round_repeats_it(tmp_path: Path) -> None:
    """In a simulation the round is replayed from the same model, with the same coins, draws and noise."""
    whole, calls = run(), 0

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if limit is not None and calls > limit:
            raise KeyboardInterrupt
        return binary_loss(output, targets)

    limit: int | None = None
    run(loss=loss)
    limit, calls = calls - 3, 0
    with pytest.raises(KeyboardInterrupt):
        run(loss=loss, checkpoint=tmp_path)
    limit = None
    assert outcome(run(loss=loss, checkpoint=tmp_path)) == outcome(whole)


def test_a_finished_run_is_found_again_without_training(tmp_path: Path) -> None:
    whole = run(checkpoint=tmp_path)
    rounds: list[RoundLog] = []
    again = run(checkpoint=tmp_path, on_round=rounds.append)
    assert outcome(again) == outcome(whole)
    assert rounds == []


def test_a_checkpoint_is_replaced_as_a_whole(tmp_path: Path) -> None:
    run(checkpoint=tmp_path / "deep" / "inside")
    assert [path.name for path in (tmp_path / "deep" / "inside").iterdir()] == [NAME]


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 5},
        {"method": "minimum"},
        {"public": make_public(5, 2, participation=0.6)},
        {"model": "moved"},
        {"silos": "budgets"},
    ],
    ids=["seed", "method", "plan", "starting model", "probabilities"],
)
def test_a_checkpoint_of_another_run_is_refused(other: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(on_round=Interrupt(2), checkpoint=tmp_path)
    if "model" in other:
        other = {"model": make_model()}
        next(other["model"].parameters()).data.fill_(0.5)
    if "silos" in other:
        other = {"silos": [make_silo(silo.name, MIXED, len(silo.records), q=0.4) for silo in federation(MIXED)]}
    with pytest.raises(InputError, match="the checkpoint belongs to another run"):
        run(**{"checkpoint": tmp_path, **other})


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("not a checkpoint")


def header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"rpdp-checkpoint/2", b"rpdp-checkpoint/9"))


def log(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'\\"joined\\"', b'\\"jointd\\"'))


@pytest.mark.parametrize("damage", [cut, empty, text, header, log], ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_is_refused(damage: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(on_round=Interrupt(2), checkpoint=tmp_path)
    before = (tmp_path / NAME).read_bytes()
    damage(tmp_path / NAME)
    assert (tmp_path / NAME).read_bytes() != before
    with pytest.raises(InputError, match=r"(damaged|not a) checkpoint .*remove it to start again") as refusal:
        run(checkpoint=tmp_path)
    assert str(refusal.value).count("remove it") == 1
