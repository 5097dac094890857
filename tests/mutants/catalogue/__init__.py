"""All seeded bugs, layer by layer."""

from tests.mutants.catalogue.accounting import ACCOUNTING
from tests.mutants.catalogue.accounts import ACCOUNTS
from tests.mutants.catalogue.agent import AGENT
from tests.mutants.catalogue.consent import CONSENT
from tests.mutants.catalogue.console import CONSOLE
from tests.mutants.catalogue.estimates import ESTIMATES
from tests.mutants.catalogue.federation import FEDERATION
from tests.mutants.catalogue.holds import HOLDS
from tests.mutants.catalogue.ledger import LEDGER
from tests.mutants.catalogue.node import NODE
from tests.mutants.catalogue.outlook import OUTLOOK
from tests.mutants.catalogue.planning import PLANNING
from tests.mutants.catalogue.recovery import RECOVERY
from tests.mutants.catalogue.request_prices import REQUEST_PRICES
from tests.mutants.catalogue.requests import REQUESTS
from tests.mutants.catalogue.sampling import SAMPLING
from tests.mutants.catalogue.statements import STATEMENTS
from tests.mutants.catalogue.stewards import STEWARDS
from tests.mutants.catalogue.tables import TABLES
from tests.mutants.catalogue.training import TRAINING
from tests.mutants.catalogue.tuning import TUNING

CATALOGUE = (
    *ACCOUNTING,
    *TABLES,
    *PLANNING,
    *SAMPLING,
    *TRAINING,
    *LEDGER,
    *HOLDS,
    *ACCOUNTS,
    *STEWARDS,
    *RECOVERY,
    *FEDERATION,
    *AGENT,
    *NODE,
    *OUTLOOK,
    *REQUEST_PRICES,
    *REQUESTS,
    *ESTIMATES,
    *CONSENT,
    *CONSOLE,
    *STATEMENTS,
    *TUNING,
)

__all__ = ["CATALOGUE"]
