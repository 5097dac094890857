"""Train a digit classifier with differential privacy."""

import torch
from digits import Run, accuracy, cnn
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader


def train(run: Run, seed: int) -> nn.Module:
    """Return the trained model."""
    torch.manual_seed(seed)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(run.dataset, batch_size=int(run.batch))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=run.sigma, max_grad_norm=run.clip
    )
    for epoch in range(run.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: accuracy {accuracy(model, run.test):.3f}")
    return model
