"""What `rpdp silo check` measures: the slowest round of every allowed model, the slowest request of every purpose.

Both are held against the public time of answers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from rpdp.deployment.agent.release_timing import TRAINING_SHARE
from rpdp.errors import PrivacyRefusal
from rpdp.sampling import Secure
from rpdp.statistics.request_time import slowest_request
from rpdp.training import FlatModel, make_kernel, require_value_independent
from rpdp.training.round_time import slowest_round

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.deployment.agent.agent import Agent
    from rpdp.deployment.files.silo_file import SiloFile


def slowest_rounds(spec: SiloFile, agent: Agent) -> dict[str, float]:
    """Return the seconds that a round can take on this machine, by model, with as many steps as the policy allows.

    Every record is counted in every step, because a server may ask for so much noise that all are drawn.
    """
    records, before = agent.silo.records, torch.get_num_threads()
    torch.set_num_threads(spec.silo.threads)
    try:
        return {
            name: slowest_round(
                make_kernel(FlatModel(copy.deepcopy(model.module)), model.loss, records),
                records,
                spec.policy.max_local_steps,
                Secure(),
            )
            for name, model in zip(spec.models, agent.models, strict=True)
        }
    finally:
        torch.set_num_threads(before)


def slowest_requests(spec: SiloFile, agent: Agent) -> dict[str, float]:
    """Return the seconds that a request can take here, by purpose, with as many cells as the policy allows."""
    before, purposes = torch.get_num_threads(), agent.silo.purposes
    torch.set_num_threads(spec.silo.threads)
    try:
        found = {name: slowest_request(purposes.source(name), spec.policy.max_cells) for name in purposes.answered}
        return {name: seconds for name, seconds in found.items() if seconds is not None}
    finally:
        torch.set_num_threads(before)


def not_checked(spec: SiloFile, agent: Agent) -> list[str]:
    """Return what could not be checked of the models, by name."""
    return [
        f"model {name}: {note}"
        for name, model in zip(spec.models, agent.models, strict=True)
        for note in require_value_independent(model.module, model.loss, agent.silo.records)
    ]


def require_enough_time(spec: SiloFile, seconds: Mapping[str, float]) -> None:
    """Refuse a `release_after` that a round can exceed because of a record."""
    after = spec.policy.release_after
    if after is None:
        return
    slow = {name: each / TRAINING_SHARE for name, each in seconds.items() if each > TRAINING_SHARE * after}
    if slow:
        name, needed = max(slow.items(), key=lambda item: item[1])
        raise PrivacyRefusal(
            f"{spec.path}: policy.release_after={after:g} is too short: with model {name} a round of "
            f"{spec.policy.max_local_steps} steps can take up to {needed:.3g} s here, with every record drawn and "
            f"failing, and a record could make it late. Use release_after = {_rounded_up(needed)}, a smaller "
            "max_local_steps, or more threads"
        )


def require_time_for_requests(spec: SiloFile, seconds: Mapping[str, float]) -> None:
    """Refuse a `release_after` that a request can exceed."""
    after = spec.policy.release_after
    slow = {} if after is None else {name: each for name, each in seconds.items() if each > TRAINING_SHARE * after}
    if not slow:
        return
    name, seconds_needed = max(slow.items(), key=lambda item: item[1])
    needed = seconds_needed / TRAINING_SHARE
    raise PrivacyRefusal(
        f"{spec.path}: policy.release_after={after:g} is too short: a request for {name} can take up to {needed:.3g} s "
        f"here, and a record could make it late. Use release_after = {_rounded_up(needed)}, a smaller max_cells, or "
        "more threads"
    )


def _rounded_up(seconds: float) -> str:
    return f"{float(f'{1.05 * seconds:.2g}'):g}"
