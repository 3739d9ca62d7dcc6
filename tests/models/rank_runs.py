"""Processes of one group on this machine, connected by MLX's ring."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from free_ports import free_ports

TESTS = Path(__file__).parents[1]


@contextlib.contextmanager
def started(folder, count, command, **variables):
    """Start a command once for each rank; end what is left at the end."""
    ring = [[f"127.0.0.1:{port}"] for port in free_ports(count)]
    hosts = folder / "ring.json"
    hosts.write_text(json.dumps(ring))
    ranks = []
    try:
        for rank in range(count):
            environment = {
                # Most tests are not about the comparison at a first start.
                "AKUNU_CHECK_RANKS": "false",
                **os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts),
                "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
                **variables,
            }  # fmt: skip
            # A pipe that does not end, as mlx.launch gives every rank.
            ranks.append(
                subprocess.Popen(
                    [sys.executable, *command], env=environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def run(folder, count, command, **environment):
    """Run a command on all ranks; return the exit code, output and errors of each."""
    with started(folder, count, command, **environment) as ranks:
        results = [rank.communicate() for rank in ranks]
        return [(rank.returncode, *said) for rank, said in zip(ranks, results, strict=True)]
