"""Hostile behaviour that cannot be told from an honest server's, or is the same: harmless, and checked to be."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.deployment.agent.connections import MOST_CONNECTIONS
from rpdp.federation import Update
from rpdp.federation.frames import HEADER_BYTES
from rpdp.planning import Recipe
from tests.deployment.agent.hostile import BESIDE, HELLO, PLANE, PUBLIC, Row, Target, against_the_canary
from tests.deployment.agent.scene import RUN, SIZE, admission, announcement, cancellation, reason, status
from tests.federation.world import FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from rpdp.federation.frames import Frame


def _finite_or_sat_out(answer: Frame, joined: bool = True) -> str:
    if answer.kind == "sat-out":
        return "diverged: sat out, charged once" if joined else "sat out by its coin"
    assert answer.kind == "update"
    change = Update.from_bytes("a", answer.payload).change
    assert bool(change.isfinite().all())
    return "clipped, noised, charged once"


def _crafted(values: ArrayLike, **more: Any) -> Callable[[Target], str]:
    """A new round from a crafted model: answered like any other, and charged once."""

    def attack(target: Target) -> str:
        before = status(target.agent)
        checked = _finite_or_sat_out(target.next_joined(values, **more))
        after = status(target.agent)
        assert len(after.joined) == len(before.joined) + 1
        assert after.announced == target.asked
        return checked

    return attack


def _unseen(values: ArrayLike) -> Callable[[Target], str]:
    """A new round from a model that overflows for the canary alone: answered with an update, as without the canary."""

    def attack(target: Target) -> str:
        answers = [target.next_joined(values) for _ in range(2)]
        assert [answer.kind for answer in answers] == ["update"] * 2
        return "an update: the canary's NaN counts as zero"

    return attack


def _replayed(values: ArrayLike, **more: Any) -> Callable[[Target], str]:
    def attack(target: Target) -> str:
        before = target.state()
        for number, first in target.first.items():
            answer = target.round(number, values, **more)
            assert (answer.kind, answer.payload) == (first.kind, first.payload)
        assert target.state() == before
        return "the same bytes, or sat out again; no charge"

    return attack


def _backwards(target: Target) -> str:
    before = target.state()
    for number, first in reversed(target.first.items()):
        answer = target.round(number, 0.5)
        assert (answer.kind, answer.payload) == (first.kind, first.payload)
    assert target.state() == before
    return "each its own answer; no charge"


def _skipped(target: Target) -> str:
    before, number = status(target.agent), target.asked + 4
    target.round(number)
    after = status(target.agent)
    assert after.announced == number
    missed = set(range(before.announced + 1, number))
    assert not missed & set(after.joined)
    for one in sorted(missed):
        assert target.round(one).kind == "sat-out"
    assert status(target.agent) == after
    return "missed rounds are charged, and sat out for ever"


def _many_hellos(target: Target) -> str:
    before = target.state()
    assert len({target.ask(HELLO).to_bytes() for _ in range(100)}) == 1
    assert target.state() == before
    return "100 times the same answer"


def _many_admissions(target: Target) -> str:
    before = target.state()
    for _ in range(10):
        assert target.ask(admission(PUBLIC)).kind == "admitted"
    assert target.state() == before
    return "reserved once"


def _longer_hold(target: Target) -> str:
    before = target.state()
    assert target.ask(admission(PUBLIC, hold=86_400)).kind == "admitted"
    assert target.state() == before
    return "the hold is not prolonged"


def _cancelled_and_back(target: Target) -> str:
    """Hold and cancel, again and again; then everything that could bring a cancelled run back."""
    before = _left(target)
    assert target.ask(admission(PUBLIC)).kind == "admitted"
    assert _left(target) != before
    assert {target.ask(cancellation()).kind for _ in range(3)} == {"cancelled"}
    assert _left(target) == before
    for attempt in (admission(PUBLIC), admission(PUBLIC, head=target.agent.silo.account.public_head())):
        assert reason(target.ask(attempt)) == "cancelled"
    assert reason(target.ask(announcement(PUBLIC, 1))) == "run"
    for number in range(4):
        assert target.ask(admission(PUBLIC, f"run {number}")).kind == "admitted"
        assert target.ask(cancellation(f"run {number}")).kind == "cancelled"
    assert _left(target) == before
    assert not any(one.announced or one.joined for one in target.agent.silo.account.status().runs)
    return "all of it is returned, and the run never is"


def _left(target: Target) -> object:
    silo = target.agent.silo
    return silo.account.left(silo.budgets, silo.policy.lifetime_delta).amount.tolist()


def _one_round_at_once(target: Target) -> str:
    """Twelve callers ask for the same new round with different models."""
    before, number = status(target.agent), target.asked + 1
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda values: target.round(number, values), np.linspace(-1, 1, 12)))
    assert len({(answer.kind, answer.payload) for answer in answers}) == 1
    after = status(target.agent)
    assert after.announced == before.announced + 1
    assert len(after.released) - len(before.released) == (answers[0].kind == "update")
    return "one coin, one release, the same bytes for all"


def _replayed_beside(target: Target) -> str:
    """Rounds of one run, announced in the other with the same numbers and models."""
    here = status(target.agent)
    for number, first in target.first.items():
        answer = target.beside(number)
        assert not first.payload or answer.payload != first.payload
        assert target.beside(number, 1.0).payload == answer.payload
        assert target.round(number).payload == first.payload
    there = status(target.agent, "beside")
    assert status(target.agent) == here
    assert there.announced == max(target.first)
    assert there.released == there.joined
    return "its own coin, charge and noise in each run"


def _in_turn(target: Target) -> str:
    """The rest of the shorter run, in turn with rounds of the other."""
    for number in range(status(target.agent, "beside").announced + 1, BESIDE.schedule.rounds + 1):
        before = status(target.agent), status(target.agent, "beside")
        target.round(target.asked + 1)
        target.beside(number)
        after = status(target.agent), status(target.agent, "beside")
        assert [one.announced - was.announced for one, was in zip(after, before, strict=True)] == [1, 1]
    assert len(status(target.agent, "beside").joined) == 20
    assert len(status(target.agent).joined) <= 40
    target.check_promise()
    return "each within its own plan: exactly 20 of 40 rounds beside the other run"


def _both_at_once(target: Target) -> str:
    """Twelve callers ask for one new round of each of two runs, with different models."""
    before, number = status(target.agent).announced, target.asked + 1
    next_beside = status(target.agent, "beside").announced + 1
    target.asked = number

    def asked(place: int) -> tuple[bool, str, bytes]:
        own = place % 2 == 0
        values = np.full(SIZE, place / 10.0)
        answer = target.round(number, values) if own else target.beside(next_beside, values)
        return own, answer.kind, answer.payload

    with ThreadPoolExecutor(12) as pool:
        assert len(set(pool.map(asked, range(12)))) == 2
    assert status(target.agent).announced == before + 1
    assert status(target.agent, "beside").announced == next_beside
    return "one coin and one answer in each run"


def _many_rounds_at_once(target: Target) -> str:
    before, last = status(target.agent), target.asked + 8
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(wanted := range(last - 7, last + 1), pool.map(target.round, wanted), strict=True))
    after = status(target.agent)
    assert after.announced == last
    released = set(after.released) - set(before.released)
    assert released == {number for number, answer in answers.items() if answer.kind == "update"}
    assert released == set(after.joined) - set(before.joined)
    return "one after another; what was overtaken sat out"


def _gone(target: Target) -> str:
    """The caller hangs up while its round is trained; asked again, it gets what was stored."""
    number = target.asked + 1
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(target.live.path))
        link.sendall(announcement(PUBLIC, number).to_bytes())
    answer, again = target.round(number), target.round(number, 2.0)
    assert (answer.kind, answer.payload) == (again.kind, again.payload)
    assert status(target.agent).announced == number
    return "charged once, answered once"


def _silent(sent: int) -> Callable[[Target], str]:
    """All places taken by callers who send so many bytes and then nothing."""

    def attack(target: Target) -> str:
        before, held = target.state(), []
        for _ in range(MOST_CONNECTIONS + 4):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(str(target.live.path))
            held[-1].sendall(HELLO[:sent])
        began = time.monotonic()
        assert target.ask(HELLO).kind == "hello"
        assert target.ask(admission(PUBLIC)).kind == "admitted"
        assert time.monotonic() - began < 5.0
        for link in held:
            link.close()
        assert target.state() == before
        return "others are served at once"

    return attack


def _to_the_end(target: Target) -> str:
    """All rounds, each twice with another model, and as many beyond the last."""
    answers = {}
    for number in range(target.asked + 1, 81):
        answers[number] = target.round(number)
        assert target.round(number, 3.0).payload == answers[number].payload
    over = target.state()
    for number in range(81, 100):
        assert reason(target.round(number)) == "round"
    assert target.ask(admission(PUBLIC)).kind == "admitted"
    assert target.state() == over
    one = status(target.agent)
    assert one.announced == 80
    assert len(one.joined) <= 40
    target.check_promise()
    return f"{len(one.joined)} of 40 rounds joined, none beyond T"


def _strange_plan(run: str = RUN, rounds: int = 3, **changes: Any) -> Callable[[Target], str]:
    """A plan inside the policy with a setting that nobody would choose: admitted, and nothing comes of it."""

    def attack(target: Target) -> str:
        public = replace(PUBLIC, **changes)
        assert target.ask(admission(public, run)).kind == "admitted"
        answers = {n: target.ask(announcement(public, n, run=run)) for n in range(1, rounds + 1)}
        one = status(target.agent, run)
        seen = {_finite_or_sat_out(answer, number in one.joined) for number, answer in answers.items()}
        assert one.announced == rounds
        assert set(one.released) <= set(one.joined)
        return "; ".join(sorted(seen))

    return attack


def _path_as_name(target: Target) -> str:
    before = sorted(path.name for path in target.folder.rglob("*"))
    checked = _strange_plan("../../../tmp/x; rm -rf $HOME")(target)
    assert sorted(path.name for path in target.folder.rglob("*")) == before
    return f"a name and no path: no file came or went; {checked}"


def _too_many_runs(target: Target) -> str:
    """Three short runs are all that this silo's policy allows."""
    short = replace(PUBLIC, schedule=replace(PUBLIC.schedule, rounds=2, participations=1))
    account = target.agent.silo.account
    for run in ("one", "two", "three"):
        head = account.public_head() if account.status().runs else None
        assert target.ask(admission(short, run, head)).kind == "admitted"
        for number in (1, 2):
            target.ask(announcement(short, number, run=run, head=account.public_head()))
    over = target.state()
    assert reason(target.ask(admission(short, "four", account.public_head()))) == "policy"
    assert target.state() == over
    return "refused after three"


def _cancelling() -> NDArray[np.float32]:
    """Products with the canary that are infinite with both signs; all others stay finite."""
    first, second, *_ = PLANE
    return np.array([1e37 * first, -1e37 * second, 0.0, 0.0, 0.0], dtype=np.float32)


LARGEST = float(np.finfo(np.float32).max)
HARMLESS = [
    Row("a round again", "", _replayed(0.0)),
    Row("a round again from another model", "", _replayed(1e3)),
    Row("a round again with a correction", "", _replayed(0.0, correction=5.0)),
    Row("rounds asked backwards", "", _backwards),
    Row("rounds left out", "", _skipped),
    Row("a hundred times hello", "", _many_hellos),
    Row("admission again and again", "", _many_admissions),
    Row("a longer hold of a run that has begun", "", _longer_hold),
    Row("one round from twelve callers at once", "", _one_round_at_once),
    Row("eight rounds at once", "", _many_rounds_at_once),
    Row("a caller who hangs up", "", _gone),
    Row("twenty silent callers", "", _silent(0)),
    Row("twenty callers silent after a header", "", _silent(HEADER_BYTES + 1)),
    Row("weights of 10³⁰", "", _crafted(1e30)),
    Row("weights of ±10³⁰ in turn", "", _crafted(1e30 * (-1.0) ** np.arange(SIZE))),
    Row("the largest float32", "", _crafted(LARGEST)),
    Row("denormal weights", "", _crafted(1e-45)),
    Row("negative zeros", "", _crafted(-0.0)),
    Row("weights that only the canary is large for", "", _crafted(against_the_canary())),
    Row("weights with which only the canary overflows", "", _unseen(1e34 * against_the_canary())),
    Row("weights with which the canary's sum is ∞ − ∞", "", _unseen(_cancelling())),
    Row("a saturated model: gradients of 10⁻²³", "", _crafted(np.append(np.zeros(FEATURES), -53.0))),
    Row("a correction of 10³⁰", "", _crafted(0.0, correction=1e30)),
    Row("the largest correction", "", _crafted(0.0, correction=LARGEST)),
    Row("all rounds, then more", "", _to_the_end),
    Row("rounds of one run announced in another", "", _replayed_beside, "several"),
    Row("one round of each of two runs, from twelve callers at once", "", _both_at_once, "several"),
    Row("rounds of two runs in turn, to the end of one", "", _in_turn, "several"),
    Row("a micro-batch of 10¹⁸", "", _strange_plan(recipe=Recipe(micro_batch=10**18)), "fresh"),
    Row("an average over 10¹⁸ rounds", "", _strange_plan(recipe=Recipe(averaged_rounds=10**18)), "fresh"),
    Row("B = 10⁻³⁰", "", _strange_plan(normaliser=1e-30), "fresh"),
    Row("B = 10³⁰⁰", "", _strange_plan(normaliser=1e300), "fresh"),
    Row("σ = 10⁶", "", _strange_plan(noise_multiplier=1e6), "fresh"),
    Row("δ = 10⁻⁹", "", _strange_plan(delta=1e-9), "fresh"),
    Row("a weight of 0 for this silo", "", _strange_plan(weights={"a": 0.0, "b": 1.0}), "fresh"),
    Row("a path as the name of a run", "", _path_as_name, "fresh"),
    Row("a run's name of 100 letters", "", _strange_plan("λ" * 100), "fresh"),
    Row("a fourth run of three", "policy", _too_many_runs, "fresh"),
    Row("holds and cancellations, and a cancelled run again", "", _cancelled_and_back, "fresh"),
]
