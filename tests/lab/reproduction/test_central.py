"""Tables 2 and 3: which runs they are made of, what bounds them, and what their sections say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from rpdp_lab.features.public_start import scaled_cnn, stroke_started_cnn
from rpdp_lab.features.strokes import draw_strokes
from rpdp_lab.reproduction.cell import PROFILES
from rpdp_lab.reproduction.sections import central as sections
from rpdp_lab.reproduction.suites import central as suites
from rpdp_lab.reproduction.work.central import best_penalty, estimators

from rpdp.tasks.models.convolutional import paper_cnn
from tests.lab.reproduction.conftest import finding

if TYPE_CHECKING:
    from rpdp_lab.reproduction.cell import Profile


@pytest.mark.parametrize("profile", PROFILES)
def test_the_published_split_has_many_seeds_and_other_splits_are_apart(profile: Profile) -> None:
    cells = [cell for cell in suites.table_2(profile) if "split" in cell.settings]
    splits = {part: {cell.settings["split"] for cell in cells if cell.part == part} for part in suites.SEEDS}
    assert splits["heart"] == splits["mnist"] == {None}
    assert len(splits["heart, other splits"]) == suites.SEEDS["heart, other splits"][profile]
    assert len({cell.name for cell in suites.table_2(profile)}) == len(suites.table_2(profile))


def test_a_missed_goal_says_what_is_reached_without_privacy() -> None:
    accuracies = {"plain SGD": 0.79, "rPDP-SGD (certified)": 0.795, "Filter": 0.78}
    cells = [
        finding(
            cell,
            accuracy=accuracies.get(cell.settings["method"], 0.7),
            seconds_per_step=0.001,
            records_per_step=32.0,
            train_records=486,
            test_records=254,
            note=None,
        )
        for cell in suites.table_2("quick")
        if cell.part == "heart"
    ]
    ceiling = next(cell for cell in suites.table_2("quick") if cell.part == "heart, no privacy")
    section = sections.table_2([*cells, finding(ceiling, accuracy=0.815)])
    ours = next(verdict for verdict in section.verdicts if "ours" in verdict.what)
    assert (ours.met, "0.8150" in ours.why) == (False, True)
    assert any("0.7900" in line and "0.8150" in line for line in section.lines)


@pytest.mark.usefixtures("real_data")
def test_the_best_penalty_does_not_reach_the_papers_number_on_the_published_split() -> None:
    """A reason that the page gives; 0.8189 is 208 of 254 patients."""
    numbers = best_penalty({"task": "heart"}, "cpu")
    assert (numbers["train_records"], numbers["test_records"]) == (486, 254)
    assert 0.80 < numbers["accuracy"] < 208 / 254


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("model", ["cnn", "cnn, public start"])
def test_a_network_of_table_3_trains(model: str) -> None:
    settings = {
        **suites.TABLE_3,
        **suites.TRAINING[model]["group-3"],
        "model": model,
        "scenario": "group-3",
        "steps": 3,
    }
    numbers = estimators({**settings, "estimator": "certified", "seed": 0, "train": True}, "cpu")
    assert numbers["largest_ratio"] <= 1.0
    assert 0.05 < numbers["accuracy"] < 1.0


def test_the_network_from_strokes_has_the_papers_parameters_and_no_opinion_yet() -> None:
    network, images = stroke_started_cnn(), torch.from_numpy(draw_strokes(8, 1))
    assert sum(value.numel() for value in network.parameters()) == 26_010
    assert all(value.requires_grad for value in network.parameters())
    assert not network(images).any()
    again = stroke_started_cnn()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_scaling_is_a_constant_in_front_of_the_usual_start() -> None:
    images = torch.from_numpy(draw_strokes(4, 2))
    scaled, plain = scaled_cnn(seed=3), paper_cnn(activation="tanh", seed=3)
    assert torch.allclose(scaled(images), plain(((images + 1) / 2 - 0.1) / 0.3), atol=1e-5)
