from __future__ import annotations

import pytest

from tests.cli.conftest import rpdp  # noqa: F401 (a fixture)
from tests.federation.conftest import one_thread, spy  # noqa: F401 (fixtures)


@pytest.fixture
def in_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can be made, as inside an app that Flower has started."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
