"""`akunu` as tests run it: in this process, or as a program of its own."""

import sys

from click.testing import CliRunner

from akunu_py.cli.main import cli

AKUNU = [sys.executable, "-c", "from akunu_py.cli.main import main; main()"]

ENDLESS = ["--logit-bias", "331=-1e6", "--logit-bias", "335=-1e6"]
"""The end-of-generation ids of the tiny vocabulary are never chosen."""


def run(*arguments, code=None, **options):
    """Run a command in this process; a traceback or another exit code fails the test."""
    result = CliRunner().invoke(cli, [str(word) for word in arguments], **options)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert code is None or result.exit_code == code, result.output
    return result
