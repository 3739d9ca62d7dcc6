"""A program on a pseudo-terminal: type, wait for words, look."""

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time

from akunu_runs import AKUNU, with_variables

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")


class PtyChild:
    """`akunu ARGUMENTS` on a terminal of its own, history and settings in `home`."""

    program = AKUNU
    patience_s = 120
    """Long enough for a busy machine: only a program that hangs is given up."""

    def __init__(self, *arguments, home, rows=24, columns=80, program=None, **environment):
        self._leader, follower = os.openpty()
        self.resize(rows, columns)
        words, variables = with_variables(arguments)
        self.child = subprocess.Popen(
            [*(program or self.program), *words],
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=os.environ | {
                "HOME": str(home), "XDG_DATA_HOME": str(home), "TERM": "xterm-256color",
                # Nobody here answers where the cursor is.
                "PROMPT_TOOLKIT_NO_CPR": "1", **variables, **environment,
            },
        )  # fmt: skip
        os.close(follower)
        # A read may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = ""
        self._prompts = 0
        self.seen = ""

    def type(self, keys):
        data = keys.encode()
        while data:
            # A terminal takes a few kilobytes at once; meanwhile what it shows must be read.
            if select.select([], [self._leader], [], 0.05)[1]:
                data = data[os.write(self._leader, data[:1024]) :]
            self._read(0)

    def until(self, words):
        """Wait for words, codes left out; return what came before them."""
        end = time.monotonic() + self.patience_s
        while words not in (text := _CODES.sub("", self._unread)):
            assert time.monotonic() < end, f"no {words!r} in {text[-2000:]!r}"
            self._read(0.1)
        before, _, rest = text.partition(words)
        self._unread = rest
        return before

    def ready(self):
        """Wait for the next prompt; what came before it counts as read."""
        self._prompts += 1
        end = time.monotonic() + self.patience_s
        # Drawn at its beginning; what is typed from then on reaches it.
        while self.seen.count("\x1b[?2004h") < self._prompts:
            assert time.monotonic() < end, f"no prompt in {self.seen[-2000:]!r}"
            self._read(0.1)
        self._unread = ""

    def say(self, keys, words="tokens/s"):
        """Type at the next prompt, and wait for words."""
        self.ready()
        self.type(keys)
        self.until(words)

    def leave(self):
        self.ready()
        self.type("/exit\r")
        assert self.wait() == 0
        assert "Traceback" not in self.seen

    def characters(self, count):
        """Wait for so many, after what was read."""
        end = time.monotonic() + self.patience_s
        while len(_CODES.sub("", self._unread)) < count:
            assert time.monotonic() < end, f"only {self._unread!r}"
            self._read(0.1)

    def resize(self, rows, columns):
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self):
        self.type("\x03")

    def wait(self):
        """Return the exit status."""
        end = time.monotonic() + self.patience_s
        while self.child.poll() is None and time.monotonic() < end:
            self._read(0.05)
        return self.child.wait(0.1)

    def _read(self, seconds):
        if select.select([self._leader], [], [], seconds)[0]:
            try:
                data = self._decoder.decode(os.read(self._leader, 65536))
            except OSError:  # the other side is closed
                time.sleep(0.01)
                return
            self._unread += data
            self.seen += data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        os.close(self._leader)
