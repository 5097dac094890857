"""`RunResult.model`: the trained module, from the run itself or with a module of one's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from rpdp.errors import InputError
from rpdp.federation import model_fingerprint
from tests.federation.simulations import MIXED, run
from tests.federation.world import make_model


def flat(module: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector([value for value in module.parameters() if value.requires_grad]).detach()


def test_a_run_gives_its_trained_model() -> None:
    start = make_model()
    before = flat(start).clone()
    result = run(model=start)
    assert torch.equal(flat(result.model), result.values)
    assert not torch.equal(result.values, before)
    assert torch.equal(flat(start), before)  # the module that was given is not changed
    assert type(result.model) is type(start)


def test_the_model_is_a_copy() -> None:
    result = run()
    with torch.no_grad():
        next(result.model.parameters()).fill_(1e3)
    assert torch.equal(flat(result.model), result.values)
    assert result.values.abs().max() < 1e3


def test_frozen_parameters_stay_as_they_were() -> None:
    model = make_model()
    frozen = next(iter(model.parameters()))
    frozen.requires_grad_(False)
    public = replace(MIXED, model_fingerprint=model_fingerprint(model))
    trained = run(public, model=model).model
    assert torch.equal(next(iter(trained.parameters())), frozen)
    assert [value.requires_grad for value in trained.parameters()] == [
        value.requires_grad for value in model.parameters()
    ]


def test_without_a_module_the_way_out_is_named() -> None:
    result = replace(run(), module=None)
    with pytest.raises(InputError, match=r"call result\.load_into\(module\)"):
        _ = result.model
    module = make_model()
    assert result.load_into(module) is module
    assert torch.equal(flat(module), result.values)


def test_another_architecture_is_refused() -> None:
    model = make_model()
    result = run(replace(MIXED, model_fingerprint=model_fingerprint(model)), model=model)
    wider = nn.Linear(99, 7)
    same_size = nn.Sequential(nn.Linear(len(result.values), 1, bias=False))
    for wrong in (wider, same_size):
        before = flat(wrong).clone()
        with pytest.raises(InputError, match="use a module of the architecture that was trained"):
            result.load_into(wrong)
        assert torch.equal(flat(wrong), before)
