"""Frames on the wire: what goes in comes out, and whatever else comes is refused before memory is taken for it."""

from __future__ import annotations

import json
import pickle
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rpdp.errors import PrivacyRefusal, Reason
from rpdp.federation.frames import HEADER_BYTES, MAGIC, MOST_FACTS, UNREACHABLE, Frame, refused

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 1000
HEADER = struct.Struct("<8sIQ")


def wire(facts: bytes, payload: bytes = b"", magic: bytes = MAGIC) -> bytes:
    return HEADER.pack(magic, len(facts), len(payload)) + facts + payload


def refusal(data: bytes, most: int = MOST) -> Reason:
    with pytest.raises(PrivacyRefusal) as caught:
        Frame.from_bytes(data, most)
    return caught.value.reason


# There and back

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
anything = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(st.dictionaries(st.text(), anything), st.binary(max_size=MOST))
def test_a_frame_comes_back_as_it_was(facts: dict[str, Any], payload: bytes) -> None:
    frame = Frame(facts, payload)
    data = frame.to_bytes()
    assert Frame.from_bytes(data, MOST) == frame
    assert Frame.from_bytes(data, MOST).to_bytes() == data


def test_the_order_of_facts_does_not_show() -> None:
    assert Frame({"b": 1, "a": 2}).to_bytes() == Frame({"a": 2, "b": 1}).to_bytes()


def test_a_frame_with_numbers_that_are_none_is_not_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Frame({"x": float("nan")}).to_bytes()


def test_the_kind_of_a_frame_is_a_word_whatever_it_holds() -> None:
    assert Frame({"kind": "hello"}).kind == "hello"
    assert Frame({}).kind == "None"
    assert Frame({"kind": ["round"]}).kind == "['round']"


def test_refusals_are_one_word() -> None:
    for one in Reason:
        assert Frame.from_bytes(refused(one).to_bytes(), 0).facts == {"kind": "refused", "reason": one.value}
    assert Frame.from_bytes(UNREACHABLE.to_bytes(), 0).facts == {"kind": "unreachable"}


def test_reading_takes_exactly_one_frame() -> None:
    """From a stream, which may hold more: the service looks whether there is."""
    data = Frame({"a": 1}, b"one").to_bytes() + b"more"
    place = 0

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        return data[place - count : place]

    assert Frame.read(take, MOST) == Frame({"a": 1}, b"one")
    assert data[place:] == b"more"


# Limits


def test_the_payload_has_a_limit() -> None:
    assert len(Frame.from_bytes(wire(b"{}", bytes(MOST)), MOST).payload) == MOST
    assert refusal(wire(b"{}", bytes(MOST + 1))) == Reason.TOO_LARGE
    assert refusal(wire(b"{}", b"x"), 0) == Reason.TOO_LARGE


def test_facts_have_a_limit() -> None:
    room = MOST_FACTS - len('{"x":""}')
    assert len(Frame.from_bytes(wire(b'{"x":"%s"}' % (b"y" * room)), MOST).facts["x"]) == room
    assert refusal(wire(b'{"x":"%s"}' % (b"y" * (room + 1)))) == Reason.TOO_LARGE


@pytest.mark.parametrize(("facts", "payload"), [(2**32 - 1, 0), (2, 2**64 - 1), (2**32 - 1, 2**64 - 1), (2, MOST + 1)])
def test_lengths_are_looked_at_before_anything_is_read(facts: int, payload: int) -> None:
    asked = []

    def take(count: int) -> bytes:
        asked.append(count)
        return HEADER.pack(MAGIC, facts, payload)

    with pytest.raises(PrivacyRefusal) as caught:
        Frame.read(take, MOST)
    assert caught.value.reason == Reason.TOO_LARGE
    assert asked == [HEADER_BYTES]


# Frames that are none


@pytest.mark.parametrize("cut", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 3, -1])
def test_a_cut_frame(cut: int) -> None:
    assert refusal(Frame({"kind": "hello"}, b"payload").to_bytes()[:cut]) == Reason.MALFORMED


@pytest.mark.parametrize("more", [b"\0", b"\n", Frame({"kind": "hello"}).to_bytes()])
def test_something_after_a_frame(more: bytes) -> None:
    assert refusal(Frame({"kind": "hello"}).to_bytes() + more) == Reason.MALFORMED


def test_another_version_is_told_apart_from_nonsense() -> None:
    assert refusal(wire(b"{}", magic=b"rpdp-sa1")) == Reason.VERSION
    assert refusal(wire(b"{}", magic=b"rpdp-up1")) == Reason.MALFORMED
    assert refusal(wire(b"{}", magic=bytes(8))) == Reason.MALFORMED


@pytest.mark.parametrize(
    "facts",
    [
        b"",
        b"{",
        b"{}{}",
        b"[]",
        b"null",
        b'"kind"',
        b"{'kind': 'hello'}",
        b'{"kind": "hello",}',
        b'{"kind": hello}',
        b"\xff\xfe",
        b'{"kind": "\xff"}',
        pickle.dumps({"kind": "hello"}),
    ],
)
def test_facts_that_are_no_object(facts: bytes) -> None:
    assert refusal(wire(facts)) == Reason.MALFORMED


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig"]
)
def test_facts_are_utf_8_and_nothing_else(encoding: str) -> None:
    """Two readers must not see two texts; `json.loads` alone guesses the encoding of bytes."""
    text = '{"kind":"hellö"}'
    assert Frame.from_bytes(wire(text.encode()), MOST).facts == {"kind": "hellö"}
    assert refusal(wire(text.encode(encoding))) == Reason.MALFORMED


@pytest.mark.parametrize(
    "text", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82"],
    ids=["a surrogate", "an overlong slash", "beyond the last character", "half a character"],
)  # fmt: skip
def test_facts_are_strict_utf_8(text: bytes) -> None:
    assert refusal(wire(b'{"kind":"%s"}' % text)) == Reason.MALFORMED


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"a": {"b": 1, "b": 2}}', '{"a": 1, "\\u0061": 2}'])
def test_a_name_that_occurs_twice(text: str) -> None:
    assert refusal(wire(text.encode())) == Reason.MALFORMED
    assert isinstance(json.loads(text), dict)  # which two readers might read differently


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1.5e400", "9" * 5000])
def test_numbers_that_are_none(number: str) -> None:
    assert refusal(wire(f'{{"round": {number}}}'.encode())) == Reason.MALFORMED


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a":' + "[" * 5000 + "]" * 5000 + "}"])
def test_deep_nests(text: str) -> None:
    assert refusal(wire(text.encode())) == Reason.MALFORMED


def _refused_or_frame(read: Callable[[], Frame]) -> bool:
    try:
        read()
    except PrivacyRefusal as caught:
        found = caught.reason
    else:
        return True
    assert found in (Reason.MALFORMED, Reason.TOO_LARGE, Reason.VERSION)
    return False


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"")
@example(MAGIC)
def test_arbitrary_bytes_are_a_frame_or_refused(data: bytes) -> None:
    _refused_or_frame(lambda: Frame.from_bytes(data, MOST))


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=20), st.integers(0, 40))
@example(b"{}", b"", 0)
def test_arbitrary_facts_in_a_good_header_are_a_frame_or_refused(facts: bytes, payload: bytes, cut: int) -> None:
    data = wire(facts, payload)
    if _refused_or_frame(lambda: Frame.from_bytes(data, MOST)) and cut:
        assert not _refused_or_frame(lambda: Frame.from_bytes(data[:-cut], MOST))


@settings(max_examples=300)
@given(st.integers(0, 60), st.integers(0, 255))
def test_one_changed_byte_is_a_frame_or_refused(place: int, value: int) -> None:
    data = bytearray(Frame({"kind": "round", "round": 3, "run": "r"}, b"numbers!").to_bytes())
    data[place % len(data)] = value
    _refused_or_frame(lambda: Frame.from_bytes(bytes(data), MOST))
