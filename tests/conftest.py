from __future__ import annotations

import signal

import pytest

# Their asserts also hold under `python -O`. Here, because another directory's tests may import them first.
pytest.register_assert_rewrite("tests.ledger.account_suite", "tests.ledger.hold_suite", "tests.ledger.small")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background; tests of Ctrl-C need it in children
    signal.signal(signal.SIGINT, signal.default_int_handler)
