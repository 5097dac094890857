"""Ten of the mutants in the ordinary suite, one or two of each layer; `make mutants` runs all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mutants.__main__ import chosen
from tests.mutants.runner import attempt, control, files_of
from tests.mutants.warm_copies import warm_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutants.warm_copies import WarmCopy

SAMPLE = (
    "type-1-bound-used",
    "q-not-rounded-down",
    "fingerprint-not-checked",
    "shuffle-instead-of-poisson",
    "generator-copied-into-workers",
    "noise-a-tenth-too-small",
    "clip-norm-a-hundredth-too-large",
    "cap-not-enforced",
    "outbox-skipped",
    "refusal-carries-its-text",
)


@pytest.fixture(scope="module")
def copy() -> Iterator[WarmCopy]:
    with warm_copy(files_of(chosen(SAMPLE, None, 0))) as made:
        yield made


def test_the_untouched_copy_passes(copy: WarmCopy) -> None:
    control(copy, chosen(SAMPLE, None, 0))


@pytest.mark.parametrize("name", SAMPLE)
def test_a_mutant_is_caught(copy: WarmCopy, name: str) -> None:
    outcome = attempt(copy, chosen([name], None, 0)[0])
    assert outcome.verdict == "caught", outcome
