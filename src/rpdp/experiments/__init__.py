"""Data sets, models and tasks that experiments, examples and benchmarks share.

`rpdp.experiments.data` needs NumPy only; `rpdp.experiments.models` imports torch; `rpdp.experiments.tasks` is
the registry that binds a data set, a model, a loss and the paper's schedule under one name, and imports torch
only when a model is built.
"""
