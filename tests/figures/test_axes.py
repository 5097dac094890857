"""Axes: where values stand, and which of them are named."""

from __future__ import annotations

import pytest

from rpdp.figures.axes import PlotAxis, Scale, short_number


def named(axis: PlotAxis, *values: float) -> list[str]:
    return [text for _, text in Scale.fitted(axis, values).ticks()]


def test_a_logarithmic_axis_names_1_2_5_or_powers_of_ten() -> None:
    assert named(PlotAxis(kind="log"), 0.1, 10.0) == ["0.1", "0.2", "0.5", "1", "2", "5", "10"]
    assert named(PlotAxis(kind="log"), 1e-4, 100.0) == ["1e-4", "0.001", "0.01", "0.1", "1", "10", "100"]
    assert len(named(PlotAxis(kind="log"), 2.2, 4.4)) > 1


def test_a_linear_axis_names_about_five_round_numbers() -> None:
    assert named(PlotAxis(limits=(0.0, 1.0))) == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert named(PlotAxis(unit="%"), 0.0, 0.4)[1:3] == ["10 %", "20 %"]
    assert named(PlotAxis(whole=True), 1.0, 2.0) == ["1", "2"]
    assert named(PlotAxis(ticks=(1.0, 7.0, 99.0)), 0.0, 10.0) == ["1", "7"]


@pytest.mark.parametrize("kind", ["linear", "log"])
@pytest.mark.parametrize("values", [(), (3.0,), (3.0, 3.0), (float("nan"), float("inf")), (0.0, -1.0)])
def test_every_axis_has_room_and_a_name(kind: str, values: tuple[float, ...]) -> None:
    scale = Scale.fitted(PlotAxis(kind=kind), values)  # type: ignore[arg-type]
    assert scale.low < scale.high
    assert scale.ticks()


def test_places_run_from_0_to_1_and_stay_there() -> None:
    scale = Scale.fitted(PlotAxis(kind="log", limits=(0.1, 10.0)), ())
    assert [scale.place(value) for value in (0.01, 0.1, 1.0, 10.0, 99.0)] == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0])
    assert not scale.holds(0.0)
    assert not scale.holds(float("nan"))


def test_names_stand_in_order() -> None:
    scale = Scale.fitted(PlotAxis(kind="names"), (), ("b", "a"))
    assert scale.ticks() == [(0.0, "b"), (1.0, "a")]
    assert [scale.place(0.0), scale.place(1.0)] == [0.25, 0.75]


def test_short_numbers() -> None:
    assert [short_number(value) for value in (0.0, 0.05, 200.0, 1e-5, 1.5e6, -2e5)] == [
        "0",
        "0.05",
        "200",
        "1e-5",
        "1.5e6",
        "-2e5",
    ]
