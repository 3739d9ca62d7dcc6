"""The border to matplotlib: one style, figures without a display, SVG and PNG that do not change.

matplotlib is the extra `bench`: nothing outside this package imports it, and here only functions.
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
"""Blue, orange, pale blue: of lightness 22, 59 and 79 (CIE L*), so that grey keeps them apart, and
of hues that the common forms of colour blindness do not mix."""

GREY = "#5f5f5f"
WIDTH = 7.2
"""Inches of a picture's width."""

_DOTS_PER_INCH = 144
_LONGEST_LABEL = 30


def require_matplotlib() -> None:
    """Raise ConfigError with the way to install it where matplotlib is missing."""
    try:
        import matplotlib as _matplotlib  # noqa: F401, ICN001, PLC0415 - 0.2 s, and an extra
    except ImportError:
        raise ConfigError(
            f"pictures need matplotlib, which is not installed: {install_command('bench')}; or "
            "leave them out with --no-pictures"
        ) from None


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw with matplotlib's defaults and a few settings, whatever the user's own file says."""
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
                # Names come from files of others: "$" is a character, not mathematics.
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
    """Return a figure as "svg" or "png", the same bytes whenever it is drawn; inside `style`."""
    buffer = io.BytesIO()
    names = ("Date", "Creator", "Format", "Type") if form == "svg" else ("Software",)
    with warnings.catch_warnings():
        # A character the font lacks is drawn as a box; the page has the name as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format=form, dpi=_DOTS_PER_INCH, metadata=dict.fromkeys(names))
    return buffer.getvalue()


def label(text: str, longest: int = _LONGEST_LABEL) -> str:
    """Return a name fit for a picture: one line, no control characters, the middle cut out."""
    clean = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character)[0] == "C" else character
        for character in text
    )
    if len(clean) <= longest:
        return clean
    head = (longest - 1) // 2
    return f"{clean[:head]}…{clean[-(longest - 1 - head) :]}"
