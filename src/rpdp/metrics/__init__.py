"""Metrics: objects that say in a number how good outputs are. Importing this loads neither torch nor scikit-learn."""

from rpdp.metrics.metric import Metric
from rpdp.metrics.named_metrics import METRICS, metric_named, number, title_of
from rpdp.metrics.needs import NEEDS, Need
from rpdp.metrics.predictions import Predictions

__all__ = ["METRICS", "NEEDS", "Metric", "Need", "Predictions", "metric_named", "number", "title_of"]
