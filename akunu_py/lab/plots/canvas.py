"""The interface to matplotlib: one style, no display, reproducible SVG and PNG.

matplotlib is the extra `bench`: only this package imports it, and only inside functions.
"""

import contextlib
import io
import unicodedata
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from akunu_py.errors import ConfigError
from akunu_py.extras import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK, MIDDLE, LIGHT = "#14365c", "#d9701c", "#9fc9eb"
"""Blue, orange and pale blue, of lightness 22, 59 and 79 (CIE L*): they are distinct in grey, and
for the common forms of colour blindness."""

GREY = "#5f5f5f"
WIDTH = 7.2
"""Width of a picture in inches."""

_DOTS_PER_INCH = 144
_LONGEST_LABEL = 30


def require_matplotlib() -> None:
    """Raise ConfigError, which says how to install it, if matplotlib is missing."""
    try:
        import matplotlib as _matplotlib  # noqa: F401, ICN001, PLC0415 - 0.2 s, and an extra
    except ImportError:
        raise ConfigError(
            f"pictures need matplotlib, which is not installed: {install_command('bench')}; or "
            "leave them out with --no-pictures"
        ) from None


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw with matplotlib's defaults and a few settings, ignoring the user's own file."""
    import matplotlib as mpl  # noqa: PLC0415

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.family": ["DejaVu Sans"],  # ships with matplotlib
                "font.size": 10,
                "axes.titlesize": 11,
                "axes.titlelocation": "left",
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "grid.color": "#dddddd",
                "hatch.linewidth": 0.8,
                "legend.frameon": False,
                "svg.hashsalt": "akunu",
                # Names come from files: "$" is a character, not mathematics.
                "text.parse_math": False,
            }
        )
        yield


def new_figure(height: float) -> tuple["Figure", "Axes"]:
    """Return an empty figure of `height` inches and its axes; call and draw inside `style`."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def render(figure: "Figure", form: str) -> bytes:
    """Return a figure as "svg" or "png", always with the same bytes; call inside `style`."""
    buffer = io.BytesIO()
    names = ("Date", "Creator", "Format", "Type") if form == "svg" else ("Software",)
    with warnings.catch_warnings():
        # A character the font lacks is drawn as a box; the page has the name as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format=form, dpi=_DOTS_PER_INCH, metadata=dict.fromkeys(names))
    return buffer.getvalue()


def label(text: str, longest: int = _LONGEST_LABEL) -> str:
    """Return a name for a picture: one line, no control characters, shortened in the middle."""
    clean = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character)[0] == "C" else character
        for character in text
    )
    if len(clean) <= longest:
        return clean
    head = (longest - 1) // 2
    return f"{clean[:head]}…{clean[-(longest - 1 - head) :]}"
