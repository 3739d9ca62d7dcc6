"""Bytes to a server, as no client library would send them."""

import contextlib
import socket

SILENT_S = 60
"""How long a server may take to answer or to close; a busy machine is slow."""


def raw(server, data, *, finish=True):
    """What the server answers to raw bytes, until it closes the connection."""
    with server.socket() as connection:
        connection.settimeout(SILENT_S)
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if finish:
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        # The server may close a connection whose request it has not read to its end.
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        return answer


def head(server, path="/v1/chat/completions", *lines, method="POST"):
    fields = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *lines]
    return "\r\n".join([*fields, "", ""]).encode()
