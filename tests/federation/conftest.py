from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.federation.world import Spy

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Watches the local steps of all silos in this process."""
    return Spy(monkeypatch)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a worker, so that sums repeat to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
