"""The console script, and ``python -m looprepro``: importing the commands takes a moment, in which Ctrl-C may come, too."""

from __future__ import annotations

import sys


def run() -> None:
    """The program."""
    try:
        from looprepro.cli.main import run as command

        command()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
