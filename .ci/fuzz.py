"""
Runs the random tests (marker ``fuzz``) for as long as asked, each time with another seed, for `make fuzz`.

    .venv/bin/python .ci/fuzz.py SECONDS [pytest's arguments, such as -k RMA, choose among the tests]
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [".venv/bin/python", "-m", "pytest"]
SEED = "DACE_REDIST_SEED"
SHARE = "DACE_REDIST_SHARE"  # of the cases of each test


def pytest(*arguments: str, **variables: str) -> tuple[int, str]:
    """Return code and what was printed."""
    done = subprocess.run([*PYTEST, *arguments], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def tests(arguments: list[str]) -> list[str]:
    """Names of the random tests."""
    code, printed = pytest("-m", "fuzz", "--collect-only", "-q", *arguments)
    names = [line for line in printed.splitlines() if "::" in line]
    if code != 0 or not names:
        sys.exit(f"no test to run:\n{printed}")
    return names


def rounds(names: list[str]) -> Iterator[str]:
    """One of the parametrisations of each test, in random order, again and again: some tests have a hundred."""
    cases_of: dict[str, list[str]] = {}
    for name in names:
        cases_of.setdefault(name.partition("[")[0], []).append(name)
    while True:
        for cases in random.sample([*cases_of.values()], len(cases_of)):
            yield random.choice(cases)


def main() -> int:
    """Run them until the time is over; the exit status says whether all passed."""
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        sys.exit(__doc__)
    seconds, start = int(sys.argv[1]), time.monotonic()
    names = tests(sys.argv[2:])
    print(f"{len(names)} random tests, for {seconds} s", flush=True)
    failed: list[str] = []
    count = 0
    for name in rounds(names):
        if time.monotonic() - start > seconds:
            break
        count += 1
        seed = str(random.getrandbits(31))
        command = ["-q", f"--hypothesis-seed={seed}", name]
        code, printed = pytest(*command, **{SEED: seed, SHARE: "1"})
        outcome = "FAILED" if code else "passed"
        print(f"{time.monotonic() - start:6.0f} s  {outcome}  seed {seed:10}  {name}", flush=True)
        if code != 0:
            failed.append(f"{SHARE}=1 {SEED}={seed} {shlex.join([*PYTEST, *command])}")
            print(printed[-6000:], f"again: {failed[-1]}", sep="\n", flush=True)
    print(f"{count} runs, {len(failed)} failed{''.join(f'{chr(10)}  {one}' for one in failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
