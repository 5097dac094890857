"""Who takes part: the silo's own coin at its stated rate, empty rounds, everybody charged (privacy.md, section 4)."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import stats

from rpdp.federation import Server, Silo
from rpdp.federation.silo import _rounds_to_join
from rpdp.ledger import Charge, MemoryAccount
from rpdp.sampling import Randomness, Seeded
from tests.federation.world import FEATURES, RUN, admitted, announced, answer_all, make_public

if TYPE_CHECKING:
    from collections.abc import Callable

FALSE_ALARM = 1e-6
ROUNDS = 3000
LAMBDA = 0.3
COINS = make_public(ROUNDS, 1, participation=LAMBDA)


class Redrawing(MemoryAccount):
    """The fault to find: tails get a second chance."""

    def charge(self, run: str, number: int, coin: Callable[[], bool], rounds_to_join: Any = None) -> Charge:
        return super().charge(run, number, lambda: coin() or coin())


def joined_rounds(account: MemoryAccount, announcements_per_round: int = 1) -> int:
    """How many of 3,000 rounds a silo with seed 7 joins; it is not trained."""
    silo = admitted("a", COINS, account=account, randomness=Seeded(7))
    for number in range(1, ROUNDS + 1):
        for _ in range(announcements_per_round):
            silo.begin(announced(COINS, number))
    return len(account.status().runs[0].joined)


def is_at_the_rate(joined: int) -> bool:
    return stats.binomtest(joined, ROUNDS, LAMBDA).pvalue > FALSE_ALARM


def test_the_rate_of_the_coin() -> None:
    """Seed 7, 3,000 rounds, binomial test with a false alarm in 1e6; a silo that redraws after tails is caught."""
    assert is_at_the_rate(joined_rounds(MemoryAccount(12)))
    assert not is_at_the_rate(joined_rounds(Redrawing(12)))


def test_announcing_a_round_again_gives_no_new_coin() -> None:
    assert joined_rounds(MemoryAccount(12), announcements_per_round=3) == joined_rounds(MemoryAccount(12))


def test_silos_flip_independent_coins() -> None:
    """Two silos, 3,000 rounds, Fisher's exact test at 1e-6; a shared coin is caught."""
    public = make_public(ROUNDS, 1, participation=0.5)
    patterns = {}
    for name in ("a", "b"):
        silo = admitted(name, public)
        patterns[name] = [silo.begin(announced(public, number)) for number in range(1, ROUNDS + 1)]

    def are_independent(one: str, other: str) -> bool:
        pairs = Counter(zip(patterns[one], patterns[other], strict=True))
        table = [[pairs[first, second] for second in (False, True)] for first in (False, True)]
        return bool(stats.fisher_exact(np.array(table)).pvalue > FALSE_ALARM)

    assert are_independent("a", "b")
    assert not are_independent("a", "a")


# Exactly k rounds

EXACT = make_public(5, 1, participations=2)
ADMISSIONS = 4000


def is_uniform(draw: Callable[[Randomness], tuple[int, ...] | None]) -> bool:
    """Chi-square over the ten pairs of five rounds, 4,000 admissions with seeds 0 … 3999."""
    seen = Counter(draw(Seeded(seed)) for seed in range(ADMISSIONS))
    pairs = list(combinations(range(1, 6), 2))
    assert set(seen) <= set(pairs)
    return bool(stats.chisquare([seen[pair] for pair in pairs]).pvalue > FALSE_ALARM)


def with_a_careless_repair(randomness: Randomness) -> tuple[int, ...]:
    """The fault to find: a round drawn twice is moved to the next one."""
    one, other = (int(value) for value in randomness.integers(5, 2))
    other = (one + 1) % 5 if one == other else other
    return tuple(sorted((one + 1, other + 1)))


def test_exactly_k_rounds_are_drawn_uniformly() -> None:
    """False alarm in 1e6."""
    assert is_uniform(lambda randomness: _rounds_to_join(EXACT, randomness))
    assert not is_uniform(with_a_careless_repair)


def test_a_silo_joins_exactly_the_rounds_it_drew() -> None:
    for seed in range(20):
        silo = admitted("a", EXACT, randomness=Seeded(seed))
        joined = tuple(number for number in range(1, 6) if silo.answer(announced(EXACT, number)) is not None)
        assert joined == _rounds_to_join(EXACT, Seeded(seed).child("rounds to join"))
        assert len(joined) == 2
    assert _rounds_to_join(COINS, Seeded(1)) == ()


def test_a_capped_silo_sits_out_after_its_last_round() -> None:
    public = make_public(30, 1, participation=0.5, max_participations=4)
    silo = admitted("a", public)
    answers = [silo.answer(announced(public, number)) is not None for number in range(1, 31)]
    assert sum(answers) == 4
    uncapped = admitted("a", make_public(30, 1, participation=0.5))
    faces = [uncapped.begin(announced(uncapped.plan.public, number)) is True for number in range(1, 31)]
    assert answers == [face and sum(faces[:index]) < 4 for index, face in enumerate(faces)]


# Rounds of a federation


def test_empty_rounds_occur_leave_the_model_as_it_was_and_are_not_repeated() -> None:
    """Three silos at λ = 0.3: about a third of the rounds is empty; everybody is charged for all of them."""
    public = make_public(24, 1, participation=0.3)
    silos: list[Silo] = [admitted(name, public) for name in ("a", "b", "c")]
    server = Server(RUN, public, torch.zeros(FEATURES + 1), ["a", "b", "c"])
    empty = 0
    while not server.is_done:
        before = server.values.clone()
        updates = answer_all(server, silos)
        server.collect(updates)
        if updates:
            assert not torch.equal(server.values, before)
        else:
            assert server.values.numpy().tobytes() == before.numpy().tobytes()
            empty += 1
    assert 2 <= empty <= 16  # 8 expected
    assert server.round == 24
    for silo in silos:
        status = silo.account.status().runs[0]
        assert len(status.joined) < 24
        assert status.announced == silo.accountant.announced == 24
        assert silo.accountant.spent() == pytest.approx(silo.plan.cost)
        assert (silo.accountant.rounds_left == 0).all()


def test_a_silo_that_only_sat_out_is_charged_like_one_that_joined() -> None:
    public = make_public(6, 1, participation=0.5)

    class Tails(MemoryAccount):
        def charge(self, run: str, number: int, coin: Callable[[], bool], rounds_to_join: Any = None) -> Charge:
            return super().charge(run, number, lambda: False)

    class Heads(MemoryAccount):
        def charge(self, run: str, number: int, coin: Callable[[], bool], rounds_to_join: Any = None) -> Charge:
            return super().charge(run, number, lambda: True)

    silos = [admitted("a", public, account=account) for account in (Tails(12), Heads(12))]
    for number in range(1, 5):
        for silo in silos:
            silo.answer(announced(public, number))
    assert silos[0].account.status().runs[0].joined == ()
    assert silos[1].account.status().runs[0].joined == (1, 2, 3, 4)
    assert silos[0].accountant.spent().tolist() == silos[1].accountant.spent().tolist()
    assert (silos[0].accountant.spent() > 0.0).all()
