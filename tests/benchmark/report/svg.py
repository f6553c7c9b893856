"""Charts as SVG, small and readable without anything else: white background, few colours, each line
with its name at its end."""

import math
from dataclasses import dataclass
from html import escape

INK, FAINT, GRID = "#222222", "#666666", "#e2e2e2"
# Okabe and Ito's, which the colour-blind can tell apart.
BLUE, RED, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def number(value: float) -> str:
    """As people write it: 12,300, 1.6, 0.04."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.3g}"


def short(value: float) -> str:
    """For axes: 2M, 20k, 100, 0.1."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


@dataclass
class Scale:
    """From values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


@dataclass
class Line:
    label: str
    colour: str
    points: list[tuple[float, float]]
    spread: list[tuple[float, float]] | None = None  # least and most, for each point
    dashed: bool = False


@dataclass
class Axis:
    title: str
    low: float
    high: float
    ticks: list[float]
    log: bool = True


class Drawing:
    def __init__(self, width: int, height: int, title: str, subtitle: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="{FONT}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]
        self.text(24, 32, title, size=18, weight="600")
        self.text(24, 53, subtitle, size=13, colour=FAINT)

    def text(self, x: float, y: float, text: str, size: int = 12, colour: str = INK,
             anchor: str = "start", weight: str = "400") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> None:
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>')

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{colour}"/>')

    def path(self, points: list[tuple[float, float]], colour: str, dashed: bool) -> None:
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-linejoin="round"{dash}/>')

    def band(self, upper: list[tuple[float, float]], lower: list[tuple[float, float]],
             colour: str) -> None:
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        self.parts.append(f'<polygon points="{where}" fill="{colour}" fill-opacity="0.15"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')

    def done(self) -> str:
        return "\n".join([*self.parts, "</svg>", ""])


def spread_out(wanted: list[float], gap: float) -> list[float]:
    """Heights for labels that keep their distance, as near to those wanted as that allows."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    for _ in range(100):
        for a, b in zip(order, order[1:]):
            overlap = gap - (placed[b] - placed[a])
            if overlap > 0.01:
                placed[a] -= overlap / 2
                placed[b] += overlap / 2
    return placed


def line_chart(drawing: Drawing, box: tuple[float, float, float, float], x: Axis, y: Axis,
               lines: list[Line], title: str = "") -> None:
    """@param box left, top, right and bottom of the plot itself; labels stand right of it"""
    left, top, right, bottom = box
    across = Scale(x.low, x.high, left, right, x.log)
    up = Scale(y.low, y.high, bottom, top, y.log)
    if title:
        drawing.text(left, top - 14, title, size=13, weight="600")
    for tick in y.ticks:
        drawing.line(left, up(tick), right, up(tick))
        drawing.text(left - 8, up(tick) + 4, short(tick), colour=FAINT, anchor="end")
    for tick in x.ticks:
        drawing.line(across(tick), bottom, across(tick), bottom + 5, FAINT)
        drawing.text(across(tick), bottom + 19, short(tick), colour=FAINT, anchor="middle")
    drawing.line(left, bottom, right, bottom, FAINT)
    drawing.text((left + right) / 2, bottom + 40, x.title, size=13, anchor="middle")
    if not title:
        drawing.text(left, top - 14, y.title, size=13)

    for line in lines:
        if line.spread:
            xs = [across(at) for at, _ in line.points]
            drawing.band([(at, up(most)) for at, (_, most) in zip(xs, line.spread)],
                         [(at, up(least)) for at, (least, _) in zip(xs, line.spread)], line.colour)
    for line in lines:
        drawn = [(across(at), up(value)) for at, value in line.points]
        drawing.path(drawn, line.colour, line.dashed)
        if not line.dashed:
            for at, height in drawn:
                drawing.dot(at, height, line.colour)
    ends = spread_out([up(line.points[-1][1]) for line in lines], 17)
    for line, height in zip(lines, ends):
        drawing.text(across(line.points[-1][0]) + 10, height + 4, line.label, size=13,
                     colour=line.colour, weight="600")


def bars(drawing: Drawing, box: tuple[float, float, float, float], title: str,
         rows: list[tuple[str, float, str]], named: bool) -> None:
    """Horizontal ones, each with its value. @param rows name, value, colour"""
    left, top, right, bottom = box
    drawing.text(left, top - 12, title, size=13, weight="600")
    across = Scale(0, max(value for _, value, _ in rows), left, right, log=False)
    step = (bottom - top) / len(rows)
    for i, (name, value, colour) in enumerate(rows):
        y = top + i * step
        if named:
            drawing.text(left - 10, y + step / 2 + 4, name, size=13, anchor="end")
        drawing.rect(left, y + step * 0.15, across(value) - left, step * 0.7, colour)
        drawing.text(across(value) + 8, y + step / 2 + 4, number(value), size=13)
