"""Writes the pictures and charts of the documentation: ``python -m docs.pictures``.

The pictures of the architecture are tables of rooms and arrows, which a test compares with the
imports of the code. ``docs/flows.py`` draws how it works, ``benchmarks/charts.py`` what was
measured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import field, frozen

from benchmarks.charts import CHARTS
from docs.dashboard import dashboard
from docs.flows import FLOWS
from docs.svg import Canvas

_IMAGES: Final = Path(__file__).parent / "images"
_PACKAGE: Final = Path(__file__).parents[1] / "kinesis_publishers"
_WIDTH: Final = 900
_SIDE: Final = 14
_OUTSIDE, _CODE, _YOURS = "outside", "code", "yours"


@frozen(kw_only=True)
class Box:
    """A part of a picture.

    Attributes:
        row: its row, from 0 at the top.
        left, right: where it begins and ends, in twelfths of the width.
        room: the room of the code, as ``engine``; empty for what is outside of the code.
        lines: what is written below the title.
    """

    title: str
    row: int
    left: int
    right: int
    room: str = ""
    lines: tuple[str, ...] = ()
    fill: str = _CODE

    def horizontal(self) -> tuple[float, float]:
        unit = (_WIDTH - 2 * _SIDE) / 12
        return _SIDE + self.left * unit + 8, _SIDE + self.right * unit - 8


@frozen(kw_only=True)
class Arrow:
    """A way from one box to another.

    Attributes:
        source, target: the titles of the boxes.
        through: the room of the interface that both ends import, where neither imports the other.
    """

    source: str
    target: str
    label: str = ""
    is_label_left: bool = False
    through: str = ""


@frozen(kw_only=True)
class Picture:
    """Boxes in rows, and the arrows between them."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    gap: int = 44
    box_height: int = field(init=False, default=84)

    def box(self, title: str) -> Box:
        """Return the box with a title."""
        (found,) = [box for box in self.boxes if box.title == title]
        return found

    def render(self) -> str:
        """Return the picture as SVG."""
        rows = 1 + max(box.row for box in self.boxes)
        height = 2 * _SIDE + rows * self.box_height + (rows - 1) * self.gap
        canvas = Canvas(title=self.title, height=height, width=_WIDTH)
        for box in self.boxes:
            left, right = box.horizontal()
            room = _path_of(box.room)
            size = (right - left, self.box_height)
            canvas.box(left, self._top(box), *size, box.fill, box.title, *box.lines, room=room)
        for arrow in self.arrows:
            self._draw_arrow(arrow, canvas)
        return canvas.render()

    def _top(self, box: Box) -> float:
        return _SIDE + box.row * (self.box_height + self.gap)

    def _draw_arrow(self, arrow: Arrow, canvas: Canvas) -> None:
        source, target = self.box(arrow.source), self.box(arrow.target)
        through = f" ({_path_of(arrow.through)})" if arrow.through else ""
        (from_left, from_right), (to_left, to_right) = source.horizontal(), target.horizontal()
        if source.row == target.row:
            y = self._top(source) + self.box_height / 2
            start, end = (from_right, to_left) if from_right < to_left else (from_left, to_right)
            canvas.line(f"M{start:.0f} {y:.0f} H{end:.0f}")
            return
        x = (max(from_left, to_left) + min(from_right, to_right)) / 2
        is_down = source.row < target.row
        begin = self._top(source) + (self.box_height if is_down else 0)
        end = self._top(target) + (0 if is_down else self.box_height)
        canvas.line(f"M{x:.0f} {begin:.0f} V{end:.0f}")
        if arrow.label:
            side, css = (-8, "label right") if arrow.is_label_left else (8, "label")
            canvas.text(x + side, (begin + end) / 2 + 4, arrow.label + through, css)


def _path_of(room: str) -> str:
    if not room or room == "kinesis_publishers_spark":
        return room
    return f"{room}/" if (_PACKAGE / room).is_dir() else f"{room}.py"


RECORD: Final = Picture(
    title="The way of a record: from Kinesis through the data plane, a publisher and the engine "
    "to the application",
    boxes=(
        Box(
            title="Kinesis",
            row=0,
            left=0,
            right=8,
            lines=("GetRecords is asked, SubscribeToShard pushes",),
            fill=_OUTSIDE,
        ),
        Box(
            title="Another source",
            row=0,
            left=8,
            right=12,
            lines=("files, another queue",),
            fill=_OUTSIDE,
        ),
        Box(
            title="Data plane",
            row=1,
            left=0,
            right=8,
            room="aws",
            lines=("calls, connections, and answers decoded into columns",),
        ),
        Box(
            title="Polling and fan-out publishers",
            row=2,
            left=0,
            right=8,
            room="publishers",
            lines=("one run is one GetRecords or one subscription; waits for room",),
        ),
        Box(
            title="A publisher of your own",
            row=2,
            left=8,
            right=12,
            lines=("module:Class",),
            fill=_YOURS,
        ),
        Box(
            title="Pending pool",
            row=3,
            left=0,
            right=3,
            room="engine",
            lines=("records and bytes", "of all shards"),
        ),
        Box(
            title="Shard loop",
            row=3,
            left=4,
            right=9,
            room="engine",
            lines=("keeps the position, drops repeated records",),
        ),
        Box(
            title="Deaggregation",
            row=3,
            left=10,
            right=12,
            room="aggregation",
        ),
        Box(
            title="Checkpoints",
            row=4,
            left=0,
            right=3,
            room="progress",
            lines=("how far the application", "has processed"),
        ),
        Box(
            title="Fetcher",
            row=4,
            left=4,
            right=8,
            room="readers",
            lines=("all shards in one event loop,", "parents before children"),
        ),
        Box(
            title="Range reader",
            row=4,
            left=8,
            right=12,
            room="readers",
            lines=("exact ranges, in Spark's tasks",),
        ),
        Box(
            title="read() and scan()",
            row=5,
            left=0,
            right=6,
            room="processing",
            lines=("record by record",),
        ),
        Box(
            title="Spark source",
            row=5,
            left=6,
            right=12,
            room="kinesis_publishers_spark",
            lines=("micro-batches: prefetch or ranges",),
        ),
        Box(title="Your function", row=6, left=0, right=6, fill=_YOURS),
        Box(title="Your query", row=6, left=6, right=12, fill=_YOURS),
    ),
    arrows=(
        Arrow(source="Kinesis", target="Data plane"),
        Arrow(
            source="Data plane",
            target="Polling and fan-out publishers",
            label="DataPlane",
            through="abc",
        ),
        Arrow(source="Another source", target="A publisher of your own"),
        Arrow(
            source="Polling and fan-out publishers",
            target="Shard loop",
            label="RecordBatchConsumer",
            is_label_left=True,
            through="abc",
        ),
        Arrow(source="A publisher of your own", target="Shard loop"),
        Arrow(source="Shard loop", target="Pending pool"),
        Arrow(source="Shard loop", target="Deaggregation"),
        Arrow(source="Shard loop", target="Fetcher", label="deliveries"),
        Arrow(source="Shard loop", target="Range reader"),
        Arrow(source="Fetcher", target="Checkpoints"),
        Arrow(source="Fetcher", target="read() and scan()"),
        Arrow(source="Fetcher", target="Spark source", label="prefetch"),
        Arrow(source="Range reader", target="Spark source", label="ranges"),
        Arrow(source="read() and scan()", target="Your function"),
        Arrow(source="Spark source", target="Your query", label="Arrow batches"),
    ),
)

_SERVICES: Final = ("Clients", "Publishers", "Engine", "Deaggregator", "Progress", "Event sinks")

PROPERTY: Final = Picture(
    title="The way of a property: from text through the configuration and the assembly to the "
    "part that reads it",
    boxes=(
        Box(
            title="dict, .properties file",
            row=0,
            left=0,
            right=4,
            lines=("kinesis.*, flink.*, aws.*",),
            fill=_YOURS,
        ),
        Box(
            title="Options of a Spark source",
            row=0,
            left=4,
            right=8,
            room="kinesis_publishers_spark",
            lines=("and other connectors' names",),
        ),
        Box(
            title="Command line",
            row=0,
            left=8,
            right=12,
            room="cli",
            lines=("--stream, --property; config check",),
        ),
        Box(
            title="Properties",
            row=1,
            left=0,
            right=12,
            room="config",
            lines=(
                "an option is declared once: key, type, default, meaning",
                "every value is parsed, rules between options apply, all problems are reported",
            ),
        ),
        Box(
            title="Readers",
            row=2,
            left=0,
            right=12,
            room="readers",
            lines=("open the services, read with them, and close them",),
        ),
        Box(
            title="Assembly",
            row=3,
            left=0,
            right=12,
            room="assembly",
            lines=("typed sections in, open services out; names become classes here alone",),
        ),
        Box(title="Clients", row=4, left=0, right=2, room="aws"),
        Box(title="Publishers", row=4, left=2, right=4, room="publishers"),
        Box(title="Engine", row=4, left=4, right=6, room="engine"),
        Box(title="Deaggregator", row=4, left=6, right=8, room="aggregation"),
        Box(title="Progress", row=4, left=8, right=10, room="progress"),
        Box(title="Event sinks", row=4, left=10, right=12, room="metrics"),
    ),
    arrows=(
        Arrow(source="dict, .properties file", target="Properties"),
        Arrow(source="Options of a Spark source", target="Properties"),
        Arrow(source="Command line", target="Properties"),
        Arrow(source="Properties", target="Readers", label="from_properties()"),
        Arrow(source="Readers", target="Assembly", label="open"),
        *(Arrow(source="Assembly", target=part) for part in _SERVICES),
    ),
)

#: The pictures that are tables of rooms and arrows, by their file below ``docs/images``.
MAPS: Final = {"way-of-a-record.svg": RECORD, "way-of-a-property.svg": PROPERTY}

#: What draws each picture, by its file below ``docs/images``.
PICTURES: Final[dict[str, Callable[[], str]]] = {
    **{name: picture.render for name, picture in MAPS.items()},
    **FLOWS,
    **CHARTS,
    "grafana-dashboard.svg": dashboard,
}

if __name__ == "__main__":
    for name, render in PICTURES.items():
        (_IMAGES / name).write_text(render(), encoding="utf-8")
