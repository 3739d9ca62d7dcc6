"""`akunu` as tests run it: in this process, or as a program of its own."""

import sys

from click.testing import CliRunner

from akunu_py.cli.main import cli

AKUNU = [sys.executable, "-c", "from akunu_py.cli.main import main; main()"]

ENDLESS = ["AKUNU_LOGIT_BIAS=331=-1e6 335=-1e6"]
"""The end-of-generation ids of the tiny vocabulary are never chosen."""


def with_variables(arguments):
    """Return the words of a command and the variables among them, as in AKUNU_PLAIN=true."""
    variables, words = {}, []
    for word in map(str, arguments):
        name, is_set, value = word.partition("=")
        if is_set and name.startswith("AKUNU_"):
            variables[name] = f"{variables[name]} {value}" if name in variables else value
        else:
            words.append(word)
    return words, variables


def run(*arguments, code=None, **options):
    """Run a command in this process; a traceback or another exit code fails the test.

    Variables stand among its words, as in a shell.
    """
    words, variables = with_variables(arguments)
    result = CliRunner().invoke(cli, words, env=variables, **options)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert code is None or result.exit_code == code, result.output
    return result
