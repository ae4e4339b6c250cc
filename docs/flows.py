"""Draws how reading works: who asks whom, what fills up, what waits, what comes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from docs.svg import WIDTH, Canvas

__all__ = ["FLOWS"]

_STEP: Final = 34


def polling() -> str:
    """Two readers ask one shard."""
    return _calls(
        "POLLING: the reader asks",
        ("Reader A", "Shard", "Reader B"),
        (
            (0, 1, "GetRecords"),
            (1, 0, "records, and the lag"),
            (2, 1, "GetRecords"),
            (1, 2, "the same records"),
            (0, 0, "200 ms later, at once if it is behind:"),
            (0, 1, "GetRecords"),
            (1, 0, "records"),
        ),
        ("All readers of a shard together:", "5 calls and 2 MB a second"),
    )


def fan_out() -> str:
    """A shard pushes to two readers."""
    return _calls(
        "EFO: Kinesis pushes",
        ("Reader A", "Shard", "Reader B"),
        (
            (0, 1, "SubscribeToShard"),
            (2, 1, "SubscribeToShard"),
            (1, 0, "event: records"),
            (1, 2, "event: records"),
            (1, 0, "event: records"),
            (1, 2, "event: records"),
            (0, 0, "after 5 minutes: subscribe again"),
        ),
        ("Each stream consumer has", "2 MB a second of every shard"),
    )


def _calls(
    title: str,
    actors: tuple[str, ...],
    steps: tuple[tuple[int, int, str], ...],
    last: tuple[str, ...],
) -> str:
    """Draw calls between actors from top to bottom; one of an actor to itself is a note."""
    canvas = Canvas(title=title, height=86 + _STEP * len(steps) + 20 + 17 * len(last))
    canvas.text(14, 26, title, "title left")
    places = [62 + (WIDTH - 124) / (len(actors) - 1) * number for number in range(len(actors))]
    bottom = 80 + _STEP * len(steps)
    for name, x in zip(actors, places, strict=True):
        canvas.line(f"M{x:.0f} 70 V{bottom}", "dashed")
        canvas.box(x - 46, 40, 92, 30, "outside" if name == "Shard" else "code", name)
    for number, (source, target, label) in enumerate(steps):
        y, start, end = 104 + _STEP * number, places[source], places[target]
        if source == target:
            canvas.rect(start + 8, y - 18, 6.2 * len(label), 20, "paper", round=0)
            canvas.text(start + 10, y - 4, label, "label")
            continue
        canvas.line(f"M{start:.0f} {y} H{end + (4 if end < start else -4):.0f}")
        canvas.text((start + end) / 2, y - 7, label)
    for number, line in enumerate(last):
        canvas.text(WIDTH / 2, bottom + 18 + 17 * number, line, "title" if number else "")
    return canvas.render()


def prefetch() -> str:
    """Every record passes through the driver's machine."""
    canvas = Canvas(title="prefetch: the records pass through the driver's machine", height=430)
    canvas.text(14, 26, "prefetch", "title left")
    canvas.box(110, 42, 180, 40, "outside", "Kinesis")
    canvas.box(60, 134, 280, 60, "code", "The source's process", "reads ahead; holds the pool")
    canvas.box(60, 246, 280, 60, "outside", "Spark's driver", "a micro-batch, records inside")
    _tasks(canvas, 360, 26)
    for top, label in ((82, "every record"), (194, "every record, compressed")):
        canvas.line(f"M200 {top} V{top + 42}", "heavy")
        canvas.text(218, top + 30, label, "left")
    for x in (82, 200, 318):
        canvas.line(f"M{x} 306 V348", "heavy")
    return canvas.render()


def ranges() -> str:
    """The tasks read the records themselves."""
    canvas = Canvas(title="ranges: the tasks read the records from Kinesis", height=452)
    canvas.text(14, 26, "ranges", "title left")
    canvas.box(110, 42, 180, 40, "outside", "Kinesis")
    canvas.box(20, 134, 240, 60, "code", "The source's process", "finds the end of each range")
    canvas.box(20, 246, 240, 60, "outside", "Spark's driver", "a micro-batch: two positions")
    _tasks(canvas, 346)
    canvas.line("M140 82 V132")
    canvas.text(132, 112, "a few records", "right")
    canvas.line("M140 194 V244")
    canvas.text(150, 224, "positions", "left")
    for x in (70, 188):
        canvas.line(f"M{x} 306 V344")
    canvas.line("M260 290 H306 V344")
    canvas.text(200, 330, "positions", "left")
    canvas.line("M270 82 V106 H381 V438 H70 V420", "heavy")
    for x in (188, 306):
        canvas.line(f"M{x} 438 V420", "heavy")
    canvas.text(371, 226, "every record", "right")
    return canvas.render()


def _tasks(canvas: Canvas, y: float, left: float = 14) -> None:
    for number in range(3):
        canvas.box(left + 118 * number, y, 112, 58, "yours", "Task", "your query")


def backpressure() -> str:
    """A subscription asks for room before each event."""
    size, steps = (
        4,
        (
            (1, "Room is taken; an event is read.", ""),
            (3, "More events come than are delivered.", ""),
            (4, "The pool is full.", ""),
            (
                4,
                "No room: the next event stays unread,",
                "and the connection holds the service back.",
            ),
            (2, "A delivery returns: its room is free.", ""),
            (3, "Room is taken; the next event is read.", ""),
            (
                4,
                "No room for 30 s: the subscription is",
                "closed. Later it continues at its position.",
            ),
        ),
    )
    canvas = Canvas(
        title="Backpressure: a subscription asks for room in the pool before each event",
        height=64 + 46 * len(steps),
    )
    canvas.text(14, 26, "EFO: room is asked for, event by event", "title left")
    canvas.text(386, 46, "the pool", "label right")
    for number, (filled, first, second) in enumerate(steps):
        y = 56 + 46 * number
        canvas.text(14, y + 18, f"{number + 1}", "title left")
        canvas.text(32, y + (9 if second else 18), first, "left")
        canvas.text(32, y + 26, second, "left")
        for cell in range(size):
            colour = ("again" if filled == size else "ours") if cell < filled else "outside"
            canvas.rect(310 + 19 * cell, y, 17, 28, f"{colour} box", round=2)
    return canvas.render()


def resharding() -> str:
    """Children wait until their parents have been read to the end."""
    canvas = Canvas(title="Resharding: a child is read when all its parents have ended", height=452)
    canvas.text(14, 26, "What producers write", "title left")
    canvas.text(386, 26, "time →", "label right")
    _shards(canvas, 38, ((0, 14, 96), (1, 116, 120), (2, 116, 120), (3, 242, 144)))
    for x, label in ((110, "split"), (239, "merge")):
        canvas.line(f"M{x + 1} 38 V186", "dashed")
        canvas.text(x, 204, label, "small")
    canvas.text(14, 236, "How the reader, which is behind, reads it", "title left")
    _shards(canvas, 248, ((0, 44, 110), (1, 172, 76), (2, 172, 112), (3, 302, 84)))
    for row, left, width in ((1, 116, 42), (2, 116, 42), (3, 242, 46)):
        y = 248 + 37 * row
        canvas.rect(left, y, width, 30, "paper stroke dashed", round=4)
        canvas.text(left + width / 2, y + 19, "waits", "small")
    for x in (163, 293):
        canvas.line(f"M{x} 248 V412", "dashed")
    for x, label in ((90, "micro-batch 1"), (228, "micro-batch 2"), (340, "micro-batch 3")):
        canvas.text(x, 418, label, "small")
    canvas.text(200, 440, "A child is never in the micro-batch of its parent.", "")
    return canvas.render()


def _shards(canvas: Canvas, top: float, bars: tuple[tuple[int, float, float], ...]) -> None:
    names = ("parent", "child 1", "child 2", "grandchild")
    for row, left, width in bars:
        y = top + 37 * row
        canvas.rect(left, y, width, 30, f"{('code', 'yours', 'yours', 'again')[row]} box", round=4)
        canvas.text(left + width / 2, y + 19, names[row])


def guarantees() -> str:
    """Where the position is stored, and what comes again after a crash."""
    canvas = Canvas(
        title="Where the position is stored, and what a crash at record 7 repeats", height=478
    )
    rows = (
        (
            "Spark",
            "the offset log has the range of the micro-batch",
            3,
            8,
            "4 to 8, the same rows",
        ),
        ("read, scan, on_batch", "the checkpoint store has record 4", 4, 7, "5 to 7"),
        ("Position and result in one transaction", "your database has record 6", 6, 7, "7"),
    )
    canvas.text(14, 26, "A crash while record 7 is processed", "title left")
    for number, (title, where, stored, last, again) in enumerate(rows):
        y = 44 + 136 * number
        canvas.text(14, y + 16, title, "title left")
        canvas.text(14, y + 34, f"Stored: {where}", "label")
        for record in range(1, 10):
            x, is_again = 14 + 41 * (record - 1), stored < record <= last
            colour = "again" if is_again else "yours" if record <= stored else "outside"
            canvas.rect(x, y + 46, 37, 30, f"{colour} box", round=4)
            canvas.text(x + 18, y + 66, f"{record}", "title" if record == 7 else "")
        mark = 14 + 41 * stored - 2
        canvas.line(f"M{mark} {y + 40} V{y + 84}", "")
        left, right = 14 + 41 * stored, 14 + 41 * last - 4
        canvas.line(f"M{left} {y + 86} V{y + 92} H{right} V{y + 86}", "")
        canvas.text(min((left + right) / 2, 300), y + 110, f"again: {again}")
    for number, (colour, label) in enumerate(
        (
            ("yours", "processed and stored"),
            ("again", "delivered again"),
            ("outside", "not yet delivered"),
        )
    ):
        x = 14 + (0, 152, 272)[number]
        canvas.rect(x, 452, 12, 12, f"{colour} box", round=2)
        canvas.text(x + 18, 462, label, "label")
    return canvas.render()


#: What draws each picture, by its file below ``docs/images``.
FLOWS: Final[dict[str, Callable[[], str]]] = {
    "flow-polling.svg": polling,
    "flow-fan-out.svg": fan_out,
    "flow-prefetch.svg": prefetch,
    "flow-ranges.svg": ranges,
    "flow-backpressure.svg": backpressure,
    "flow-resharding.svg": resharding,
    "flow-guarantees.svg": guarantees,
}
