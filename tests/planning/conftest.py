"""What several tests of planning share."""

from __future__ import annotations

import pytest

from rpdp import PublicPlan, Schedule


@pytest.fixture(scope="session")
def public() -> PublicPlan:
    """One for all tests, at δ = 1e-4: its tables are made once."""
    return PublicPlan(
        Schedule(6, 5, participation=0.5),
        noise_multiplier=2.0,
        delta=1e-4,
        clip_norm=1.0,
        normaliser=10.0,
        weights=1.0,
        accountant="rdp",
    )
