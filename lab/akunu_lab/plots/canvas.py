"""The interface to matplotlib: one style, no display, reproducible SVG.

matplotlib is the extra `bench`: only this package imports it, and only inside functions.
"""

import contextlib
import io
import unicodedata
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from akunu_lab.install import install_command
from akunu_py.api import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK, MIDDLE, LIGHT = "#14365c", "#d9701c", "#9fc9eb"
"""Blue, orange and pale blue, of lightness 22, 59 and 79 (CIE L*): they are distinct in grey, and
for the common forms of colour blindness."""

PAPER, INK, GREY, _GRID = "#ffffff", "#1b1b1b", "#5f5f5f", "#dddddd"

SHADES = (
    "#a84300", "#d97b32", "#efaa70", "#fadcc0", "#f4f4f2", "#d3e4f3", "#9cc4e4", "#4d8fc4",
    "#1b4f86",
)  # fmt: skip
"""Orange for speeds below 1, neutral at 1, blue above. The two ends carry PAPER's text, the others
INK's, on light and on dark pages."""

ON_DARK = {
    PAPER: "#15181c", INK: "#e8e8e8", GREY: "#a9adb3", _GRID: "#343a42",
    DARK: "#7fb8ec", MIDDLE: "#f0934a", LIGHT: "#2f4f70",
    **dict(zip(SHADES, (
        "#ffa35c", "#96501b", "#74401b", "#4b2f1b", "#2b2f35", "#1f3950", "#254f78", "#2f659b",
        "#8ec7ff",
    ), strict=True)),
}  # fmt: skip
"""What each colour of a picture becomes where the reader prefers dark pages."""

WIDTH = 6.0
"""Inches of a picture's width: as wide as a phone its text can still be read."""

SMALL = 10.5
"""Points of numbers in a picture."""

_LONGEST_LABEL = 30


def require_matplotlib() -> None:
    """Raise ConfigError, which says how to install it, if matplotlib is missing."""
    try:
        import matplotlib as _matplotlib  # noqa: F401, ICN001 - 0.2 s, and an extra
    except ImportError:
        how = install_command("bench")
        raise ConfigError(
            f"pictures need matplotlib, which is not installed: {how}; or "
            "leave them out with --no-pictures"
        ) from None


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw with matplotlib's defaults and a few settings, ignoring the user's own file."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.family": ["DejaVu Sans"],  # ships with matplotlib
                "font.size": 12,
                "text.color": INK,
                "axes.labelcolor": INK,
                "axes.edgecolor": INK,
                "xtick.color": INK,
                "ytick.color": INK,
                "figure.facecolor": PAPER,
                "axes.facecolor": PAPER,
                "savefig.facecolor": PAPER,
                "hatch.color": DARK,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "grid.color": _GRID,
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def render(figure: "Figure") -> bytes:
    """Return a figure as SVG, always with the same bytes; call inside `style`.

    The picture is dark where the reader prefers dark pages. matplotlib writes each colour into the
    style of its element, which a rule may overrule; programs that know no such rules show the light
    picture.
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A character the font lacks is drawn as a box; the page has the name as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        names = ("Date", "Creator", "Format", "Type")
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(names))
    rules = "".join(
        f'[style*="{what}: {colour}"]{{{what}:{dark}!important}}'
        for colour, dark in ON_DARK.items()
        for what in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    head, end, rest = buffer.getvalue().partition(b"</defs>")
    return head + style.encode() + end + rest


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
