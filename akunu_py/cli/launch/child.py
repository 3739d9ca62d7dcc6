"""Runs the command line in a process that ends when the one that started it is gone.

`akunu launch` gives its server a pipe as standard input, writes nothing to it, and keeps the other
end open. The kernel closes that end with the process, however it ended, `kill -9` included. This
works on Linux and on macOS, which has no signal for the death of a parent.
"""

import os
import signal
import sys
import threading

from akunu_py.cli.main import main


def _end_with_the_parent() -> None:
    try:
        while os.read(sys.stdin.fileno(), 4096):
            pass
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_parent, name="akunu parent", daemon=True).start()
    main()
