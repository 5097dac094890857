"""Updates as bytes: the same numbers back, a fixed size, nothing else accepted."""

from __future__ import annotations

import struct

import pytest
import torch

from rpdp.errors import InputError
from rpdp.federation import Update

VALUES = torch.tensor([0.1, -2.5, 0.0, -0.0, 1e-40, 3e38])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip(dtype: torch.dtype) -> None:
    update = Update("north", 7, VALUES.to(dtype))
    back = Update.from_bytes("north", update.to_bytes())
    assert (back.silo, back.round, back.change.dtype) == ("north", 7, dtype)
    assert back.change.numpy().tobytes() == update.change.numpy().tobytes()
    assert back.to_bytes() == update.to_bytes()


def test_the_size_depends_on_the_model_only() -> None:
    sizes = {
        len(Update(silo, number, change).to_bytes())
        for silo, number, change in [
            ("a", 1, torch.zeros(100)),
            ("a much longer name", 10**6, torch.full((100,), 1e-30)),
            ("b", 3, torch.randn(100, generator=torch.Generator().manual_seed(0))),
            ("c", 3, torch.full((200,), 1.0)[::2]),
        ]
    }
    assert len(sizes) == 1


def test_what_is_read_can_be_changed_without_changing_the_bytes() -> None:
    payload = Update("a", 1, VALUES).to_bytes()
    Update.from_bytes("a", payload).change.zero_()
    assert torch.equal(Update.from_bytes("a", payload).change, VALUES)


GOOD = Update("a", 1, VALUES).to_bytes()


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "0 bytes are too few"),
        (GOOD[:23], "23 bytes are too few"),
        (b"rpdp-up9" + GOOD[8:], "not an update of this version"),
        (GOOD[:-1], "not an update of this version"),
        (GOOD[:16] + struct.pack("<Q", 2) + GOOD[24:], "not an update of this version"),
        (GOOD[:16] + struct.pack("<Q", 0) + GOOD[24:], "not an update of this version"),
        (GOOD[:16] + struct.pack("<Q", 2**63) + GOOD[24:], "not an update of this version"),
    ],
    ids=["empty", "short", "magic", "cut", "half precision", "no precision", "huge precision"],
)
def test_malformed_bytes_are_refused_and_named(payload: bytes, words: str) -> None:
    with pytest.raises(InputError, match=f"silo south: {words}"):
        Update.from_bytes("south", payload)
