"""Train a digit classifier with differential privacy."""

import torch
from digits import Run, accuracy, cnn
from rpdp import PersonalTrainer, PublicPlan, Records, Schedule
from torch import nn


def train(run: Run, seed: int) -> nn.Module:
    """Return the trained model."""
    torch.manual_seed(seed)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
    criterion = nn.CrossEntropyLoss()
    schedule = Schedule(run.epochs, run.steps, participation=1.0)
    plan = PublicPlan(schedule, noise_multiplier=run.sigma, delta=run.delta, clip_norm=run.clip, normaliser=run.batch)
    trainer = PersonalTrainer(model, criterion, optimizer, Records.of(run.dataset), run.budgets, plan, seed=seed)
    for epoch in range(run.epochs):
        for batch in trainer.next_round():
            trainer.step(batch)
        print(f"epoch {epoch + 1}: accuracy {accuracy(model, run.test):.3f}")
    return model
