"""Models of the experiments and the losses that fit them. Imports torch.

None of them has batch statistics or dropout: each record's output depends on that record alone, as the
sensitivity bound of private training needs (privacy.md, rule 5). Factories take a seed and leave torch's
global generator as it was.
"""

from __future__ import annotations

from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import Loss, binary_loss, cross_entropy, predicted_classes
from rpdp_lab.models.resnet import resnet18_groupnorm
from rpdp_lab.models.text import TextClassifier, TextHead, TextModel, encode_dataset, load_text_model

__all__ = [
    "Loss",
    "TextClassifier",
    "TextHead",
    "TextModel",
    "binary_loss",
    "cross_entropy",
    "encode_dataset",
    "load_text_model",
    "logistic_regression",
    "paper_cnn",
    "predicted_classes",
    "resnet18_groupnorm",
]
