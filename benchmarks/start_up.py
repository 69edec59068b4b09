"""Seconds that `ludus --help` takes, median of five processes; prints one JSON line."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

COMMANDS = {"python": ["-c", "pass"], "ludus --help": ["-m", "ludus", "--help"]}


def seconds(arguments: list[str]) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """One unmeasured call of each fills the caches of bytecode and disk."""
    result = {}
    for name, arguments in COMMANDS.items():
        seconds(arguments)
        result[name] = round(statistics.median(seconds(arguments) for _ in range(5)), 3)
    print(json.dumps({"benchmark": "start_up", **result}))


if __name__ == "__main__":
    main()
