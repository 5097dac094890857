"""Every table and figure of the paper as a named suite of cells, run on real data and set beside the published numbers.

    rpdp-lab reproduce all --profile quick
    rpdp-lab reproduce render

A *cell* is one computation: settings in, numbers out, kept as JSON, so that an interrupted suite continues where it
stopped. A *suite* lists its cells for a profile, computes them, and writes its section of docs/reproduction.md; each
has a module in `suites`. No promise covers anything here: all runs are seeded simulations. Listing suites and writing
the page need no torch.
"""

from rpdp_lab.reproduction.cell import PROFILES, RESULTS_VERSION, Cell, CellResult, Profile
from rpdp_lab.reproduction.suite import PageSection, Suite, Verdict

__all__ = ["PROFILES", "RESULTS_VERSION", "Cell", "CellResult", "PageSection", "Profile", "Suite", "Verdict"]
