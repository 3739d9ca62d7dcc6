"""A heat map on a terminal: numbers on coloured cells; without colour the numbers say it all."""

from typing import TYPE_CHECKING

from akunu_py.cli.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from akunu_py.lab.sweep.heat_map import HeatMap

_LOW, _HIGH = (0, 34, 78), (254, 232, 56)
"""Dark blue to yellow: the ends of cividis, whose lightness rises also for the colour-blind."""


def heat_table(heat_map: "HeatMap") -> "Table":
    """Return the map for rich's console; the best cell is marked with *."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - 0.1 s that --help must not pay
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    low, high = min(heat_map.speeds.values()), max(heat_map.speeds.values())
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    drawn.add_column(Text(f"{heat_map.y_heading} \\ {heat_map.x_heading} "), no_wrap=True)
    for x in heat_map.x_values:
        drawn.add_column(Text(f" {printable(str(x))} "), justify="right")
    for y in heat_map.y_values:
        cells: list[Text] = []
        for x in heat_map.x_values:
            speed = heat_map.speeds.get((x, y))
            if speed is None:
                cells.append(Text(" - "))
                continue
            mark = "*" if speed == high else " "
            cells.append(Text(f" {speed:.2f}{mark}", style=_style(speed, low, high)))
        drawn.add_row(Text(printable(str(y))), *cells)
    return drawn


def _style(speed: float, low: float, high: float) -> str:
    share = (speed - low) / (high - low) if high > low else 1.0
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(_LOW, _HIGH, strict=True))
    ink = "black" if share > 0.5 else "white"
    return f"{ink} on rgb({red},{green},{blue})"
