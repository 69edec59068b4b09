"""`python -m ludus.session.follower`: a rank that rank 0 started; the config comes on standard input."""

from __future__ import annotations

import sys

from ludus.errors import LudusError, RankLost
from ludus.session.ranks import follow_parent
from ludus.session.signals import EARLY


def main() -> int:
    """Train to the end; what goes wrong here is told by rank 0."""
    try:
        run = follow_parent(sys.stdin.read(), sys.argv[2::2])
    except RankLost as lost:
        if lost.where == "rank 0" and lost.problem == "went away":
            print(f"error: {lost.line()}", file=sys.stderr)
        return lost.exit_code
    except LudusError as error:
        return error.exit_code
    return EARLY if run.stopped_early else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
