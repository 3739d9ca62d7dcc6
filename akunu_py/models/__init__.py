"""The only room that knows mlx_lm and mlx.nn: models, their caches, and the Target over both."""

import contextlib
import io
import os

# transformers, which mlx-lm imports, advises on stderr to install PyTorch; akunu's users never need
# it. A user who set these variables keeps what was set.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import mlx_lm  # noqa: F401 - whatever it prints while it loads is not for akunu's users
