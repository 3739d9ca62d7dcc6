"""Ports for programs that are given theirs."""

import contextlib
import secrets
import socket


def free_ports(count):
    """Return consecutive ports that nobody uses, below those that systems give out themselves.

    One of theirs could be given to another program before a test listens there.
    """
    while True:
        first = 20_000 + secrets.randbelow(12_000)
        ports = range(first, first + count)
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
            for port in ports:
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return ports
