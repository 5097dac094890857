"""Who is in this step, and the noise on top: secure and seeded randomness, non-uniform Poisson sampling.

Everything random that happens on the way to a release (participation coins, draws of records, Gaussian noise)
comes from a `Randomness` made here. `Secure` is for real runs; `Seeded` makes a run a simulation.
"""

from rpdp.sampling.poisson_sampler import PoissonSampler
from rpdp.sampling.randomness import Randomness, Secure, Seeded

__all__ = ["PoissonSampler", "Randomness", "Secure", "Seeded"]
