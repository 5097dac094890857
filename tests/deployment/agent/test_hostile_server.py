"""Whatever a server does, no record spends more than its budget: the table of hostile behaviour, against a live agent.

The agent serves on a Unix socket, over a production ledger on disk and with secure randomness; one of its records is a
canary. `pytest -s` prints the table.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rpdp.deployment.agent.agent import Agent
from rpdp.federation import Silo, Update
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger, MemoryAccount
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import SMALLEST_CLIP_NORM, FlatModel, Records, make_kernel
from rpdp.training import affine_kernel as affine
from tests.deployment.agent.hostile import (
    CANARY_SIZE,
    Row,
    Target,
    against_the_canary,
    making,
    refuse,
    suffer,
    with_canary,
)
from tests.deployment.agent.hostile_harmless import HARMLESS
from tests.deployment.agent.hostile_refused import REFUSED
from tests.deployment.agent.scene import (
    RECORDS,
    SIZE,
    Live,
    Making,
    admission,
    announcement,
    opened,
    public_plan,
    status,
    told,
)
from tests.federation.world import FEATURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import ArrayLike

    from rpdp.federation import Announcement
    from rpdp.federation.silo import TrainedRound

ROWS = {row.name: row for row in [*REFUSED, *HARMLESS]}


@contextmanager
def target(folder: Path, made: Making, meets: str = "mid-run") -> Iterator[Target]:
    """A live agent, in mid-run or without a run; its ledger is checked in the end."""
    folder.mkdir(mode=0o700)
    with opened(folder, made) as agent, Live(agent, folder / "s") as live:
        found = Target(live, folder)
        yield found.begin(meets) if meets in ("mid-run", "several") else found
    with Ledger.read(folder / "a.db") as ledger:
        assert ledger.verify().is_good


def rows(meets: str, given: list[Row]) -> list[Row]:
    return [row for row in given if row.meets == meets]


def test_the_table_of_hostile_behaviour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outcomes: dict[str, str] = {}

    def refuse_all(found: Target, meets: str) -> None:
        for row in rows(meets, REFUSED):
            caplog.clear()
            refuse(found, row)
            assert f"refused ({row.word})" in caplog.text, f"{row.name}: the silo's log does not tell"
            assert max(map(len, caplog.messages)) < 1000  # nobody fills the disk through the log
            outcomes[row.name] = f"refused   {row.word}"

    for meets in ("mid-run", "several"):
        with target(tmp_path / meets, making(meets=meets), meets) as found:
            refuse_all(found, meets)
            for row in rows(meets, HARMLESS):
                outcomes[row.name] = f"harmless  {suffer(found, row)}"
            found.check_promise()
    for meets in ("fresh", "listed"):
        with target(tmp_path / meets, making(meets=meets), meets) as found:
            refuse_all(found, meets)
            assert found.agent.silo.account.status().runs == ()
    for number, row in enumerate(rows("fresh", HARMLESS)):
        with target(tmp_path / str(number), making(), "fresh") as found:
            checked = suffer(found, row)
            outcomes[row.name] = f"refused   {row.word}: {checked}" if row.word else f"harmless  {checked}"
    assert set(outcomes) == set(ROWS)
    assert len(outcomes) == len(REFUSED) + len(HARMLESS) >= 50
    sys.stdout.write(_table(outcomes))


def _table(outcomes: dict[str, str]) -> str:
    width = max(map(len, outcomes))
    lines = [f"{number:3d}  {name:{width}s}  {outcome}" for number, (name, outcome) in enumerate(outcomes.items(), 1)]
    good = sum(outcome.startswith(("refused", "harmless")) for outcome in outcomes.values())
    return "\n".join(["", *lines, f"{good} of {len(outcomes)} refused or harmless", ""])


def test_no_refusal_depends_on_a_record(tmp_path: Path) -> None:
    """Two silos with other records, another number of them and other budgets refuse with the same bytes."""
    answers = []
    for number, (count, seed) in enumerate(((RECORDS, 0), (47, 5))):
        heard: dict[str, bytes] = {}
        for meets in ("mid-run", "several", "fresh", "listed"):
            with target(tmp_path / f"{meets}{number}", making(count=count, seed=seed, meets=meets), meets) as found:
                heard |= {row.name: refuse(found, row) for row in rows(meets, REFUSED)}
        answers.append(heard)
    assert answers[0] == answers[1]


# The canary


def influence(values: ArrayLike, **more: Any) -> float:
    """How far the canary moves the release of one step, in units of B: at most L, if it is clipped.

    Two seeded agents get the same frames and have the same noise; in one of them the canary has withdrawn.
    """
    public = public_plan(4, 1)
    changes = []
    for withdrawn in ([], [RECORDS - 1]):
        made = Making(public, records=with_canary(), seed=11, q=1.0)
        account = MemoryAccount(RECORDS)
        agent = made.agent(account)
        assert told(agent, admission(public)).kind == "admitted"
        account.switch_off(np.array(withdrawn, dtype=np.int64))
        answer = told(agent, announcement(public, 1, values, **more))
        changes.append(Update.from_bytes("a", answer.payload).change.double())
    return float((changes[0] - changes[1]).norm()) * public.normaliser / public.recipe.learning_rate


CRAFTED: dict[str, ArrayLike] = {
    "zeros": 0.0,
    "against the canary": against_the_canary(),
    "against the canary, ten times as sure": 10.0 * against_the_canary(),
    "against all": -against_the_canary(),
    "saturated": np.append(np.zeros(SIZE - 1), -53.0),
    "denormal": 1e-45,
    "1e30": 1e30,
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_model_gets_no_more_of_the_canary_than_the_clip_norm(name: str) -> None:
    """L = 1; below 1e-3 are the roundings of a float32 model."""
    assert influence(CRAFTED[name]) <= 1.0 + 1e-3


def test_a_correction_gets_no_more_either() -> None:
    assert influence(against_the_canary(), correction=1e3) <= 1.0 + 1e-3


def test_the_canary_would_be_seen_without_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: its gradient is a hundred times the clip norm, and the other records are clipped or not alike."""
    assert influence(against_the_canary()) > 0.9  # it is clipped to L, and counts

    def unclipped(squared_norms: Tensor, bound: float) -> tuple[Tensor, None]:
        return torch.ones_like(squared_norms), None

    monkeypatch.setattr(affine, "clip_factors", unclipped)
    assert influence(against_the_canary()) > 0.9 * CANARY_SIZE


@pytest.mark.parametrize("units", [None, 256])
def test_no_model_gets_around_clipping_at_the_smallest_clip_norm_that_is_admitted(units: int | None) -> None:
    """Models with huge weights, so sure of a record that its gradient is made of factors whose squares are 0."""
    assert float(torch.tensor(1e-23).square()) == 0.0
    record = Records.of(torch.ones(1, FEATURES), torch.zeros(1, dtype=torch.int64))
    worst = 0.0
    for sure, huge in itertools.product(range(-60, -40, 4), (1e17, 1e18, 1.7e19)):
        model = FlatModel(crafted(units, sure, huge))
        kernel = make_kernel(model, binary_loss, record)
        total = kernel.clipped_sum(record, SMALLEST_CLIP_NORM).total
        worst = max(worst, float(total.double().norm()) / SMALLEST_CLIP_NORM)
    assert worst <= 1.0 + 1e-4


def crafted(units: int | None, sure: float, huge: float) -> nn.Module:
    if units is None:
        layer = nn.Linear(FEATURES, 1)
        nn.init.zeros_(layer.weight)
        nn.init.constant_(layer.bias, sure)
        return layer
    layers = [nn.Linear(FEATURES, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1)]
    model = nn.Sequential(*layers)
    for value in model.parameters():
        nn.init.zeros_(value)
    nn.init.constant_(layers[0].weight, huge / FEATURES / units**0.5)  # type: ignore[arg-type]
    nn.init.constant_(layers[2].bias, 1e-6)  # type: ignore[arg-type]
    nn.init.constant_(layers[4].weight, 1.0)  # type: ignore[arg-type]
    nn.init.constant_(layers[4].bias, sure)  # type: ignore[arg-type]
    return model


# Agents that are not safe are caught by the same rows


class Generous(Silo):
    """Has no policy."""

    def admit(self, *arguments: Any, **more: Any) -> Any:
        self.policy = _Anything()  # type: ignore[assignment]
        return super().admit(*arguments, **more)


class _Anything:
    lifetime_delta = 0.01

    def require(self, *_: object) -> None:
        """All is well."""


class Forgetful(Silo):
    """Trains a round again when it is asked again, with fresh noise."""

    def begin(self, announcement: Announcement) -> Update | bool:
        begun = super().begin(announcement)
        if isinstance(begun, Update):
            self._admitted().untrained[announcement.round] = announcement.digest()
            return True
        return begun

    def finish(self, trained: TrainedRound) -> Update:
        if self.account.stored(self._admitted().name, trained.update.round) is None:
            return super().finish(trained)
        return trained.update


class Eager(Silo):
    """Draws a new coin for a round that it sat out, when it is asked again."""

    def begin(self, announcement: Announcement) -> Update | bool:
        begun = super().begin(announcement)
        if begun is False and announcement.values.any():
            self._admitted().untrained[announcement.round] = announcement.digest()
            return True
        return begun

    def finish(self, trained: TrainedRound) -> Update:
        if trained.update.round in self.joined:
            return super().finish(trained)
        return trained.update


class Credulous(Silo):
    """Takes any numbers for a model."""

    def _require_fitting(self, name: str, given: Tensor, own: Tensor) -> None:
        """All is well."""


class Endless(Silo):
    """Goes on beyond the last round, without asking its ledger."""

    def begin(self, announcement: Announcement) -> Update | bool:
        rounds = self.plan.public.schedule.rounds
        if announcement.round > rounds:
            self._admitted().untrained[announcement.round] = announcement.digest()
            return True
        return super().begin(announcement)

    def _require_planned(self, *_: object) -> None:
        """All is well."""

    def finish(self, trained: TrainedRound) -> Update:
        return trained.update if trained.update.round > 80 else super().finish(trained)


class Mingling(Silo):
    """Takes the plan of any run for the plan of the run that is asked for."""

    def _require_planned(self, run: Any, announcement: Announcement) -> None:
        super()._require_planned(run, replace(announcement, plan=run.plan.public.fingerprint))


class Roomy(Agent):
    """Carries as many runs as are asked for."""

    def _require_room(self, run: str) -> None:
        """All is well."""


class Talkative(Agent):
    """Tells why."""

    def answer(self, request: Frame) -> Frame:
        answer = super().answer(request)
        if answer.kind == "refused":
            return Frame({**answer.facts, "why": f"{len(self.silo.records)} records"})
        return answer


class Charging(Agent):
    """Charges a round whose model is NaN, and then refuses it."""

    def answer(self, request: Frame) -> Frame:
        if b"\x00\x00\xc0\x7f" in request.payload:
            self.silo.account.charge("run", status(self).announced + 1, lambda: False)
        return super().answer(request)


@pytest.mark.parametrize(
    ("unsafe", "name"),
    [
        (making(Generous), "L above the policy, new run"),
        (making(Forgetful), "a round again"),
        (making(Forgetful), "a round again from another model"),
        (making(Eager), "rounds asked backwards"),
        (making(Credulous), "NaN in the model"),
        (making(Endless), "more rounds than T"),
        (making(Endless), "all rounds, then more"),
        (making(Mingling, meets="several"), "a round of one run with the plan of another"),
        (making(agent=Roomy, meets="several"), "a third run beside two"),
        (making(agent=Talkative), "round 0"),
        (making(agent=Charging), "NaN in the model"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.silo.__name__ + value.kind.__name__,
)
def test_an_agent_that_is_not_safe_is_caught(tmp_path: Path, unsafe: Making, name: str) -> None:
    """The control of the table: each of these rows fails on an agent that lacks what it is about."""
    row = ROWS[name]
    check = refuse if row in REFUSED else suffer
    with target(tmp_path / "unsafe", unsafe, row.meets) as found, pytest.raises(AssertionError):
        check(found, row)
