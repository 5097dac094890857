"""Registering brings a real SuperLink in line with the server's directory, and says how every silo stands."""

from __future__ import annotations

import logging
import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.deployment.files.certificates import make_silo_key
from rpdp.deployment.flower.control import Control
from rpdp.deployment.flower.flower_processes import SuperLink
from rpdp.deployment.flower.registration import register_silos
from rpdp.deployment.flower.server_run import in_one_line
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from tests.deployment.trials import make_layout, study_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rpdp.deployment.files.layout import Layout


class LikeASuperLink(Control):
    """What a SuperLink does with keys, in memory. The slow variant of the test holds it to the real one."""

    keys: list[bytes]
    states: dict[int, str]

    def register(self, public_key: str | Path, name: str) -> int:
        key = Path(public_key).read_bytes()
        if key in self.keys:
            raise RpdpError(f"flwr supernode: Public key already in use: {name}")
        self.keys.append(key)
        self.states[len(self.keys)] = "registered"
        return len(self.keys)

    def unregister(self, node: int) -> None:
        self.states[node] = "unregistered"

    def nodes(self) -> dict[int, str]:
        return dict(self.states)


@contextmanager
def in_memory(layout: Layout) -> Iterator[Control]:
    made = LikeASuperLink.of(layout)
    assert isinstance(made, LikeASuperLink)
    made.keys, made.states = [], {}
    yield made


@contextmanager
def running(layout: Layout) -> Iterator[Control]:
    with SuperLink.of(layout):
        yield Control.of(layout)


@pytest.mark.parametrize("link", [in_memory, pytest.param(running, marks=pytest.mark.slow)])
def test_a_superlink_in_line_with_the_keys(
    tmp_path: Path, link: Callable[[Layout], AbstractContextManager[Control]]
) -> None:
    layout = make_layout(tmp_path, study_text(), ("north", "south"))
    with link(layout) as control:
        assert register_silos(control, layout).states == {"north": "new", "south": "new"}

        make_silo_key(tmp_path / "other", "south")
        shutil.copy(tmp_path / "other" / "south.pub", layout.server / "keys")
        again = register_silos(control, layout)
        assert again.states == {"north": "registered", "south": "new key"}
        assert sorted(control.nodes().values()) == ["registered", "registered", "unregistered"]

        layout = replace(layout, silos=("south",))
        removed = register_silos(control, layout)
        assert (removed.states, removed.removed) == ({"south": "registered"}, ["north"])
        (number,) = [number for number, state in control.nodes().items() if state == "registered"]
        control.unregister(number)  # by hand, as anybody at the server could
        with pytest.raises(InputError, match=r"silo south was removed.*rotate-key south"):
            register_silos(control, layout)


def test_a_silo_without_its_key(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, study_text(), ("north",))
    (layout.server / "keys" / "north.pub").unlink()
    with pytest.raises(InputError, match=r"north\.pub: the public key of a silo cannot be read"):
        register_silos(Control.of(layout), layout)


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(PrivacyRefusal("north refused"), False), (ValueError("a fault"), True)]
)
def test_a_refusal_is_one_line_of_the_log(error: Exception, has_traceback: bool) -> None:
    record = logging.LogRecord("flwr", logging.ERROR, "", 0, "ServerApp raised an exception", None, None)
    try:
        raise error
    except type(error):
        record.exc_info = sys.exc_info()
    assert in_one_line(record)
    shown = logging.Formatter("%(message)s").format(record)
    assert ("Traceback" in shown) is has_traceback
    assert str(error) in shown
