"""The paper's models beyond those of `rpdp.tasks.models`: ResNet-18, and the last layer of a text encoder.

None has batch statistics or dropout. Each record's output depends on that record alone, as the sensitivity bound of
private training requires. Imports torch.
"""

from __future__ import annotations

from rpdp_lab.models.resnet import resnet18_groupnorm
from rpdp_lab.models.text import TextClassifier, TextHead, TextModel, encode_dataset, load_text_model

__all__ = ["TextClassifier", "TextHead", "TextModel", "encode_dataset", "load_text_model", "resnet18_groupnorm"]
