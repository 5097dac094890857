"""What the console's pages cost on a large ledger: seconds for each page, and the memory of the server's process.

Goals: with 10⁶ records every page answers within a second, with 10⁷ within three, and the server's process stays below
500 MB. Budgets are counted once by a process of its own; until then pages say how far that is, within the same time.

    python benchmarks/console.py [--quick] [--json] [--directory DIR] [--most 1e7]

The ledger is that of `benchmarks/ledger.py`: Rényi accounts, a thousand sampling classes; two runs that have begun, and
one that is held. Each time is the median of five requests; that of the story is the first one, too.
"""

from __future__ import annotations

import argparse
import http.cookiejar
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rpdp.ledger import Ledger
from rpdp.planning import Allowance, assign_allowed

if TYPE_CHECKING:  # mypy sees a package, `python benchmarks/name.py` sees a neighbour
    from benchmarks._harness import Benchmark
    from benchmarks.ledger import LIFETIME_DELTA, public_plan, table_of
else:
    from _harness import Benchmark
    from ledger import LIFETIME_DELTA, public_plan, table_of

PAGES = ("/", "/runs", "/budgets", "/people", "/what-if", "/actions", "/verify", "/audit")
GOALS = {10**5: 1.0, 10**6: 1.0, 10**7: 3.0}
MOST_MEMORY_MB = 500.0
SHARE = 0.2
SILO = """
[silo]
name = "large"
ledger = "ledger.db"
budgets = "budgets.csv"
[data]
factory = "hospital:load"
[models.study]
model = "hospital:model"
loss = "hospital:loss"
[policy]
max_rounds = 15
max_local_steps = 50
max_participation = 0.5
max_clip_norm = 1.0
min_noise_multiplier = 10.0
lifetime_delta = 0.01
max_runs = 10
max_share_per_run = 0.2
release_after = 1.0
"""


def make_ledger(path: Path, records: int) -> None:
    table, allowance = table_of(records), Allowance(share=SHARE)
    with Ledger.create(path, table, kind="production", lifetime_delta=LIFETIME_DELTA) as ledger:
        for number in (1, 2, 3):
            plan = assign_allowed(public_plan(15), table.ids, ledger.left(table, LIFETIME_DELTA, allowance))
            ledger.reserve(f"run-{number}", plan, time.time() + 86400.0, allowance)
            if number < 3:
                ledger.charge(f"run-{number}", 1, lambda: True)


class Browser:
    """A console in a process of its own, and a client that is signed in."""

    def __init__(self, silo: Path) -> None:
        command = [sys.executable, "-c", "from rpdp.cli import main; main()", "console", str(silo), "--no-browser"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        address = self._process.stdout.readline().split()[-1]
        self._base = address.partition("/sign-in")[0]
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(jar)
        self.ask(address.removeprefix(self._base))
        found = re.search('name="form_token" value="([^"]+)"', self.ask("/people")[1])
        assert found is not None
        self._form_token = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=60.0)

    def ask(self, path: str, **form: str) -> tuple[float, str, str, bool]:
        """Seconds, the page, its address, and whether it waits for something."""
        request = urllib.request.Request(self._base + path)  # noqa: S310 (our own server)
        if form:
            request.data = urllib.parse.urlencode({**form, "form_token": self._form_token}).encode()
            request.add_header("Origin", self._base)
        began = time.perf_counter()
        with self._opener.open(request, timeout=600.0) as answer:
            text = answer.read().decode()
        seconds = time.perf_counter() - began
        return seconds, text, answer.geturl().removeprefix(self._base), "refresh" in answer.headers

    def megabytes(self) -> float:
        """The most memory that the server's process had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000.0


def measure(bench: Benchmark, directory: Path, records: int) -> None:
    silo, size = directory / "silo.toml", f"1e{len(str(records)) - 1}"
    silo.write_text(SILO)
    make_ledger(directory / "ledger.db", records)
    with Browser(silo) as browser:
        began = time.perf_counter()
        seconds = {"overview, while it counts": browser.ask("/")[0]}
        while browser.ask("/")[3]:
            time.sleep(0.5)
        print(f"{records:,} records: counted after {time.perf_counter() - began:.1f} s")
        for page in PAGES:
            seconds[page] = statistics.median(browser.ask(page)[0] for _ in range(5))
        seconds["look up, and the story"], _, story, _ = browser.ask(
            "/people", kind="record", id=f"record-{records // 2}"
        )
        seconds["story"] = statistics.median(browser.ask(story)[0] for _ in range(5))
        memory = browser.megabytes()
    for name, taken in seconds.items():
        print(f"{1000.0 * taken:9.1f} ms  {name}")
    slowest = max(seconds, key=lambda name: seconds[name])
    context = f"{seconds[slowest]:.2f} s of {GOALS[records]:g} s: {slowest}"
    bench.record(f"slowest_page_{size}_share_of_goal", seconds[slowest] / GOALS[records], goal=1.0, context=context)
    context = f"{memory:.0f} MB of {MOST_MEMORY_MB:g} MB"
    bench.record(f"memory_{size}_share_of_goal", memory / MOST_MEMORY_MB, goal=1.0, context=context)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--most", type=float)
    options, others = parser.parse_known_args(arguments)
    bench = Benchmark("The steward's console on a large ledger", others)
    most = int(options.most or (1e5 if bench.quick else 1e7))
    for records in [size for size in GOALS if size <= most]:
        with tempfile.TemporaryDirectory(dir=options.directory) as made:
            measure(bench, Path(made), records)
    bench.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
