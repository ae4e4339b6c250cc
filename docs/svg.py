"""Draws SVG as the pictures and the charts of the documentation need it.

Every colour is a class, and has a value for light and for dark pages. Pictures and charts are
400 wide, so that their text can be read on a telephone, where they have about that width.
"""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

from attrs import Factory, define

WIDTH: Final = 400

#: The name of each colour, for light and for dark pages.
_COLOURS: Final = {
    "paper": ("#ffffff", "#1b1e26"),
    "edge": ("#cfd8dc", "#3b4252"),
    "ink": ("#263238", "#e6e9ef"),
    "grey": ("#546e7a", "#a7b3bd"),
    "line": ("#37474f", "#b0bec5"),
    "outside": ("#eceff1", "#2b313a"),
    "code": ("#e3f2fd", "#1d3a57"),
    "yours": ("#e8f5e9", "#1f4029"),
    "again": ("#ffe0b2", "#6b4a1b"),
    "ours": ("#5c6bc0", "#7986cb"),
    "others": ("#b0bec5", "#56646e"),
    "jvm": ("#90a4ae", "#78909c"),
    "workers": ("#26a69a", "#26a69a"),
    "accent": ("#c62828", "#ef9a9a"),
    "amber": ("#ef6c00", "#ffb74d"),
}
_STYLE: Final = """\
    text { font-family: sans-serif; font-size: 13px; fill: var(--ink); text-anchor: middle; }
    .figure { font-size: 28px; font-weight: bold; fill: var(--ours); }
    .title { font-weight: bold; font-size: 14px; }
    .room { font-family: monospace; font-size: 12px; fill: var(--grey); }
    .label { font-size: 12px; fill: var(--grey); text-anchor: start; }
    .small { font-size: 12px; fill: var(--grey); }
    .mono { font-family: monospace; font-size: 10px; fill: var(--grey); text-anchor: start; }
    .right { text-anchor: end; }
    .left { text-anchor: start; }
    .box { stroke: var(--line); }
    .stroke { stroke: var(--line); stroke-width: 1.5; fill: none; }
    .rule { stroke: var(--edge); stroke-width: 1; }
    .series { stroke-width: 1.6; fill: none; }
    .frame { stroke: var(--edge); }
    .dashed { stroke-dasharray: 4 4; }
    .arrow { marker-end: url(#tip); }
    .heavy { stroke: var(--ours); stroke-width: 7; marker-end: url(#heavy); }
"""


@define(kw_only=True)
class Canvas:
    """What is drawn so far."""

    title: str
    height: float
    width: float = WIDTH
    parts: list[str] = Factory(list)

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, *, round: int = 6
    ) -> None:
        """Draw a rectangle in the colour that the first word of ``kind`` names."""
        colour, _, css = kind.partition(" ")
        named = f' class="{css}"' if css else ""
        self.parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.1f}" height="{height:.0f}" '
            f'rx="{round}" fill="var(--{colour})"{named}/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write a line, around ``x`` unless ``kind`` says otherwise."""
        css = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.0f}" y="{y:.0f}"{css}>{escape(text)}</text>')

    def line(self, steps: str, kind: str = "arrow") -> None:
        """Draw a line, an arrow unless ``kind`` says otherwise."""
        self.parts.append(f'<path d="{steps}" class="stroke {kind}"/>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        *lines: str,
        room: str = "",
    ) -> None:
        """Draw a box with a title, lines below it, and the room of the code that it is."""
        self.rect(x, y, width, height, f"{kind} box")
        kinds = ["title", *[""] * (len(lines) - 1), *["room"] * bool(room)]
        shown = [*lines, *[room] * bool(room)]
        first = y + (height - 17 * (len(shown) - 1)) / 2 + 5
        for number, (line, css) in enumerate(zip(shown, kinds, strict=True)):
            self.text(x + width / 2, first + 17 * number, line, css)

    def render(self) -> str:
        """Return the picture."""
        light, dark = (
            " ".join(f"--{name}: {both[place]};" for name, both in _COLOURS.items())
            for place in (0, 1)
        )
        size = f"{self.width:.0f} {self.height:.0f}"
        tips = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="{x}" refY="4" markerWidth="{width}" '
            f'markerHeight="{width}" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="var(--{colour})"/></marker>'
            for name, x, width, colour in (("tip", 7, 11, "line"), ("heavy", 2, 19, "ours"))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" viewBox="0 0 {size}" role="img" aria-labelledby="name">\n'
            f'<title id="name">{escape(self.title)}</title>\n<style>\n'
            f"    :root {{ {light} }}\n"
            f"    @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
            f"{_STYLE}</style>\n<defs>{tips}</defs>\n"
            f'<rect x="0.5" y="0.5" width="{self.width - 1:.0f}" height="{self.height - 1:.0f}" '
            'rx="10" fill="var(--paper)" stroke="var(--edge)"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )
