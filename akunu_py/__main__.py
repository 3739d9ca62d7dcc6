"""The program `akunu`, and `python -m akunu_py`."""

import sys


def main() -> None:
    """Run the command line; the entry point of the `akunu` script."""
    try:
        # Its imports take long enough for a Ctrl-C.
        from akunu_py.cli.main import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        # Anywhere else it has become a message and this code already.
        sys.exit(130)


if __name__ == "__main__":
    main()
