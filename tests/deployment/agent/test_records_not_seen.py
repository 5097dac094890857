"""Nothing that a record causes is visible (privacy.md, rule 16): an agent answers with a bad record as without it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rpdp.deployment.agent import agent as agent_module
from rpdp.deployment.agent.release_timing import Timing
from rpdp.errors import PrivacyRefusal
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import Records
from tests.deployment.agent.scene import Making, admission, announcement, in_memory, public_plan, told
from tests.federation.world import make_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.training import PerRecordLoss

PUBLIC = public_plan()
TARGET = 4
"""The position of the record that the server looks for."""
MARK = 7
"""The label of that record."""


def with_target() -> Records:
    held = make_records(30)
    return Records(held.inputs, torch.where(torch.arange(30) == TARGET, MARK, held.targets))


def without_target() -> Records:
    return make_records(30)


def on_probabilities(output: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy(torch.sigmoid(output[:, 0]), targets.clamp(max=1).float(), reduction="none")


def sleeping(output: Tensor, targets: Tensor) -> Tensor:
    if (targets > 1).any():
        time.sleep(0.2)
    return binary_loss(output, targets)


def endless(output: Tensor, targets: Tensor) -> Tensor:
    while (targets > 1).any():
        pass
    return binary_loss(output, targets)


def allocating(output: Tensor, targets: Tensor) -> Tensor:
    return binary_loss(output, targets) + torch.zeros(int(targets.max()) ** 20).sum()


@pytest.mark.parametrize("loss", [on_probabilities, sleeping, endless, allocating])
def test_models_with_which_a_server_could_see_a_record_are_refused(loss: PerRecordLoss) -> None:
    """Whether the record is there or not."""
    for records in (without_target(), with_target()):
        with pytest.raises(PrivacyRefusal, match=r"numbers that are not finite|depend on the values of a record"):
            in_memory(Making(PUBLIC, records=records, seed=1, q=1.0, loss=loss))


class Raising:
    """A loss that raises on the record: a check may miss it, or whole numbers may be out of range."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        if (targets > 1).any():
            raise self.error
        return binary_loss(output, targets)


ERRORS = [
    IndexError("Target 7 is out of bounds."),
    MemoryError(),
    torch.OutOfMemoryError("out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000000 bytes."),
    PrivacyRefusal("not this one"),
]


def kinds(records: Records, loss: Callable[[Tensor, Tensor], Tensor]) -> list[str]:
    agent = in_memory(Making(PUBLIC, records=records, seed=1, q=1.0, loss=loss, timing=Timing(None)))
    assert told(agent, admission(PUBLIC)).kind == "admitted"
    answers = [told(agent, announcement(PUBLIC, number)).kind for number in range(1, 5)]
    agent.close()
    return answers


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_record_on_which_the_loss_fails_does_not_change_the_answers(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "require_value_independent", lambda *_: [], raising=False)
    assert kinds(without_target(), Raising(error)) == ["update"] * 4
    assert kinds(with_target(), Raising(error)) == ["update"] * 4


def test_labels_out_of_range_do_not_change_the_answers() -> None:
    """The loss passes all checks: no server can choose a label."""
    weights = torch.tensor([1.0, 2.0])

    def weighted(output: Tensor, targets: Tensor) -> Tensor:
        return binary_loss(output, targets.clamp(max=1)) * weights[targets]

    assert kinds(without_target(), weighted) == ["update"] * 4
    assert kinds(with_target(), weighted) == ["update"] * 4


@pytest.mark.parametrize("held", [without_target, with_target])
def test_weights_that_overflow_are_trained_on_like_any_others(held: Callable[[], Records]) -> None:
    """The attack: finite weights of 1e30 that make a chosen record infinite, with a loss that does not raise."""
    agent = in_memory(Making(PUBLIC, records=held(), seed=1, q=1.0, timing=Timing(None)))
    told(agent, admission(PUBLIC))
    answers = [told(agent, announcement(PUBLIC, number, [1e30, -1e30, 1e30, 0.0, 0.0])) for number in range(1, 4)]
    assert [answer.kind for answer in answers] == ["update"] * 3
    assert len({len(answer.payload) for answer in answers}) == 1
    agent.close()
