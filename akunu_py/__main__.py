"""The program `akunu`, and `python -m akunu_py`."""

import sys


def main() -> None:
    """Run the command line; the entry point of the `akunu` script."""
    try:
        # These imports take long enough to be interrupted by Ctrl-C.
        from akunu_py.cli.signals import end_by_signals

        end_by_signals()
        from akunu_py.cli.main import main as run

        run()
    except KeyboardInterrupt:
        # Everywhere else Ctrl-C already ends with a message and this code.
        sys.exit(130)


if __name__ == "__main__":
    main()
