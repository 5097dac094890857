"""Randomness and sampling: secure and seeded sources, and Poisson sampling with a probability per record.

Everything random on the way to a release (participation coins, draws of records, Gaussian noise) comes from a
`Randomness`. `Secure` is for real runs; `Seeded` makes a run a simulation.
"""

from rpdp.sampling.poisson_sampler import PoissonSampler
from rpdp.sampling.randomness import Randomness, Secure, Seeded

__all__ = ["PoissonSampler", "Randomness", "Secure", "Seeded"]
