"""The server: public weights, order of names, and updates it leaves out by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from rpdp.errors import InputError, PlanError
from rpdp.federation import Server, Update
from rpdp.planning import Recipe
from tests.federation.world import FEATURES, RUN, make_public, make_recipe

SIZE = FEATURES + 1
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.0}
PUBLIC = make_public(weights=WEIGHTS)
GOOD = torch.arange(SIZE, dtype=torch.float32)


def make_server() -> Server:
    server = Server(RUN, PUBLIC, torch.ones(SIZE), ["b", "a", "c"])
    server.announce()
    return server


def test_announcements_say_run_plan_round_and_model() -> None:
    server = Server(RUN, PUBLIC, torch.ones(SIZE), ["b", "a"])
    first = server.announce()
    assert list(first) == ["a", "b"]
    for told in first.values():
        assert (told.run, told.plan, told.round, told.correction) == (RUN, PUBLIC.fingerprint, 1, None)
        assert torch.equal(told.values, torch.ones(SIZE))
    assert server.announce()["a"].round == 2
    assert not server.is_done
    server.announce()
    server.announce()
    assert server.is_done


def test_public_weights() -> None:
    server = make_server()
    assert server.collect([Update("a", 1, GOOD), Update("b", 1, -GOOD), Update("c", 1, 100 * GOOD)]) == {}
    np.testing.assert_allclose(server.values, 1.0 - 0.5 * np.arange(SIZE), rtol=1e-6)


def test_only_silos_of_weight_zero_leave_the_model_as_it_was() -> None:
    server = make_server()
    assert server.collect([Update("c", 1, GOOD)]) == {}
    assert torch.equal(server.values, torch.ones(SIZE))


def test_updates_are_averaged_in_the_order_of_names() -> None:
    """Sums of floats depend on their order; the order in which silos answer must not matter."""
    generator = torch.Generator().manual_seed(0)
    updates = [Update(name, 1, torch.randn(SIZE, generator=generator) * 10.0**power) for name, power in
               (("a", 6), ("b", -2), ("c", 1))]  # fmt: skip
    results = set()
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        server = Server(RUN, make_public(), torch.ones(SIZE), ["a", "b", "c"])
        server.announce()
        server.collect([updates[place] for place in order])
        results.add(server.values.numpy().tobytes())
    assert len(results) == 1


def changed(place: int, value: float) -> torch.Tensor:
    change = GOOD.clone()
    change[place] = value
    return change


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Update("a", 1, torch.zeros(SIZE + 1)), r"float32 and shape \(6,\), but .* torch.float32 and shape \(5,\)"),
        (Update("a", 1, torch.zeros(SIZE, 1)), r"shape \(5, 1\)"),
        (Update("a", 1, torch.zeros(0)), r"shape \(0,\)"),
        (Update("a", 1, GOOD.double()), "torch.float64 and shape"),
        (Update("a", 1, GOOD.long()), "torch.int64 and shape"),
        (Update("a", 1, changed(2, float("nan"))), "largest number is nan"),
        (Update("a", 1, changed(0, float("inf"))), "largest number is inf"),
        (Update("a", 1, changed(4, float("-inf"))), "largest number is inf"),
        (Update("a", 1, changed(1, -1.1e6)), r"largest number is 1.1e\+06; a sound update stays below 1e\+06"),
        (Update("a", 2, GOOD), "for round 2, but this is round 1"),
        (Update("a", 0, GOOD), "for round 0, but this is round 1"),
        (Update("stranger", 1, GOOD), "not a silo of this run"),
    ],
    ids=[
        "longer", "dimensions", "empty", "float64", "integers", "NaN", "infinity", "negative infinity", "absurd",
        "future round", "past round", "unknown silo",
    ],
)  # fmt: skip
def test_a_bad_update_is_left_out_by_name_and_the_round_goes_on(bad: Update, words: str) -> None:
    server = make_server()
    rejected = server.collect([bad, Update("b", 1, GOOD)])
    assert list(rejected) == [bad.silo]
    assert re.search(words, rejected[bad.silo])
    assert torch.equal(server.values, 1.0 + GOOD)


def test_an_update_just_below_absurd_is_averaged() -> None:
    server = make_server()
    assert server.collect([Update("a", 1, changed(1, 9.9e5))]) == {}
    assert server.values[1] == pytest.approx(9.9e5, rel=1e-5)


def test_a_round_with_bad_updates_only_leaves_the_model_as_it_was() -> None:
    server = make_server()
    assert set(server.collect([Update("a", 1, changed(0, float("nan"))), Update("b", 3, GOOD)])) == {"a", "b"}
    assert torch.equal(server.values, torch.ones(SIZE))


@pytest.mark.parametrize("backbone", ["scaffold", "fedavgm", "fedadam"])
def test_rejected_updates_leave_no_trace_in_the_backbone(backbone: str) -> None:
    def run(updates: list[Update]) -> Any:
        server = Server(RUN, make_public(recipe=make_recipe(backbone)), torch.ones(SIZE), ["a", "b"])
        server.announce()
        server.collect(updates)
        return server.values.tolist(), {name: state.tolist() for name, state in server.backbone.state.items()}

    good = Update("b", 1, GOOD)
    assert run([Update("a", 1, changed(0, float("nan"))), good]) == run([good])
    assert run([Update("a", 1, 2 * GOOD), good]) != run([good])


@pytest.mark.parametrize(("averaged", "expected"), [(1, 4.0), (2, 3.5), (3, 3.0), (9, 2.5)])
def test_the_result_is_the_mean_of_the_latest_models(averaged: int, expected: float) -> None:
    """Models 1, 2, 3, 4 after the four rounds; where training started does not count."""
    server = Server(RUN, make_public(recipe=Recipe(averaged_rounds=averaged)), torch.zeros(SIZE), ["a"])
    assert torch.equal(server.result, torch.zeros(SIZE))
    while not server.is_done:
        server.announce()
        server.collect([Update("a", server.round, torch.ones(SIZE))])
    assert server.result.tolist() == [expected] * SIZE
    assert server.values.tolist() == [4.0] * SIZE


def test_the_model_given_is_copied() -> None:
    start = torch.ones(SIZE)
    server = Server(RUN, PUBLIC, start, ["a"])
    server.announce()
    server.collect([Update("a", 1, GOOD)])
    assert torch.equal(start, torch.ones(SIZE))


def test_a_silo_without_a_weight_and_a_wrong_backbone_are_refused_at_the_start() -> None:
    with pytest.raises(PlanError, match="no weight for silo 'd'"):
        Server(RUN, PUBLIC, torch.ones(SIZE), ["a", "d"])
    with pytest.raises(InputError, match="did you mean 'proximal'"):
        Server(RUN, make_public(recipe=make_recipe("fedprox", proxima=1.0)), torch.ones(SIZE), ["a"])


def test_two_updates_of_one_silo_count_for_nothing() -> None:
    server = make_server()
    rejected = server.collect([Update("a", 1, GOOD), Update("b", 1, GOOD), Update("a", 1, -GOOD)])
    assert rejected == {"a": "more than one update for the round"}
    np.testing.assert_allclose(server.values, 1.0 + np.arange(SIZE), rtol=1e-6)
