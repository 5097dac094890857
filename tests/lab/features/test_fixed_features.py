from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rpdp_lab.features import strokes
from rpdp_lab.features.array_cache import cached_array
from rpdp_lab.features.reduced_tasks import sentence_head, small_network
from rpdp_lab.features.scattering import FEATURES, scatter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def images() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return strokes.draw_strokes(12, seed=3)


def test_strokes_are_the_same_every_time_and_centred(images: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    np.testing.assert_array_equal(images, strokes.draw_strokes(12, seed=3))
    assert not np.array_equal(images, strokes.draw_strokes(12, seed=4))
    assert (images.min(), images.max()) == (-1.0, 1.0)
    ink = (images[:, 0] + 1.0) / 2.0
    rows = (ink.sum(axis=2) * np.arange(28)).sum(axis=1) / ink.sum(axis=(1, 2))
    assert np.abs(rows - 13.5).max() < 1.0


def test_features_have_length_one_and_depend_on_their_image_alone(
    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> None:
    together = scatter(images)
    assert together.shape == (12, FEATURES)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(scatter(images[5:6]), together[5:6], atol=1e-5)


def test_a_pixel_of_shift_changes_features_less_than_another_image(
    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> None:
    features = scatter(images)
    shifted = scatter(np.roll(images, 1, axis=3))
    moved = np.linalg.norm(features - shifted, axis=1)
    other = np.linalg.norm(features - np.roll(features, 1, axis=0), axis=1)
    assert moved.mean() < 0.5 * other.mean()
    pixels = np.linalg.norm((images - np.roll(images, 1, axis=3)).reshape(12, -1), axis=1)
    unlike = np.linalg.norm((images - np.roll(images, 1, axis=0)).reshape(12, -1), axis=1)
    assert moved.mean() / other.mean() < pixels.mean() / unlike.mean()  # more than pixels do by themselves


def test_the_basis_is_public_and_projects_to_length_one(
    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strokes, "IMAGES", 30)
    monkeypatch.setattr(strokes, "DIRECTIONS", 8)
    monkeypatch.delenv("RPDP_DATA", raising=False)  # no data file is within reach
    basis, again = strokes.stroke_basis(), strokes.stroke_basis()
    np.testing.assert_array_equal(basis.directions, again.directions)
    found = basis.project(scatter(images))
    assert found.shape == (12, 8)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)


def test_the_small_network_has_as_many_parameters_as_it_says() -> None:
    assert sum(value.numel() for value in small_network(0).parameters()) == 33_834


def test_the_head_has_as_many_parameters_as_it_says() -> None:
    assert sum(value.numel() for value in sentence_head().parameters()) == 3_462


def test_an_array_is_computed_once_and_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPDP_CACHE", str(tmp_path))
    calls = []

    def compute() -> np.ndarray[Any, np.dtype[np.float32]]:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return np.ones(3, dtype=np.float32)

    with pytest.raises(KeyboardInterrupt):
        cached_array("some/array", compute)
    for _ in range(2):
        assert cached_array("some/array", compute).tolist() == [1.0, 1.0, 1.0]
    assert len(calls) == 2
