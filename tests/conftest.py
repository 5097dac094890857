from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background; tests of Ctrl-C need it in children
    signal.signal(signal.SIGINT, signal.default_int_handler)
