"""The paper's network from a start that needs no data."""

from __future__ import annotations

import torch
from rpdp_lab.features.public_start import scaled_cnn, stroke_started_cnn
from rpdp_lab.features.strokes import draw_strokes

from rpdp.tasks.models.convolutional import paper_cnn


def test_the_network_from_strokes_has_the_papers_parameters_and_no_opinion_yet() -> None:
    network, images = stroke_started_cnn(), torch.from_numpy(draw_strokes(8, 1))
    assert sum(value.numel() for value in network.parameters()) == 26_010
    assert all(value.requires_grad for value in network.parameters())
    assert not network(images).any()
    again = stroke_started_cnn()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_scaling_is_a_constant_in_front_of_the_usual_start() -> None:
    images = torch.from_numpy(draw_strokes(4, 2))
    scaled, plain = scaled_cnn(seed=3), paper_cnn(activation="tanh", seed=3)
    assert torch.allclose(scaled(images), plain(((images + 1) / 2 - 0.1) / 0.3), atol=1e-5)
