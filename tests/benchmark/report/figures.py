"""The plots, one for each question."""

import math
from statistics import median

import svg
from results import Results, percentile
from svg import BLUE, GREEN, GREY, RED, Axis, Line

WIDTH = 820


def log_axis(title: str, values: list[float], floor: float = 0) -> Axis:
    """From and to the nearest 1, 2 or 5 of a decade, or whole decades if those are too many."""
    low, high = max(min(values), floor), max(values)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = [digit * 10.0**n for n in decades for digit in (1, 2, 5)]
    ticks = between(steps, low, high)
    if len(ticks) > 7:
        ticks = between(steps[::3], low, high)
    return Axis(title, ticks[0], ticks[-1], ticks)


def between(steps: list[float], low: float, high: float) -> list[float]:
    """The steps around these two, and all within."""
    first = max(i for i, step in enumerate(steps) if step <= low * 1.001)
    last = min(i for i, step in enumerate(steps) if step >= high * 0.999 and i > first)
    return steps[first : last + 1]


def doublings(title: str, counts: list[float]) -> Axis:
    ticks = [2.0**n for n in range(int(math.log2(max(counts))) + 1)]
    return Axis(title, 1, max(counts), ticks)


def curve(records: list[dict], key: str, label: str, colour: str, over: str) -> Line:
    """Medians, and what the rounds lie between."""
    records = sorted(records, key=lambda one: one[over])
    return Line(label, colour, [(one[over], median(one[key])) for one in records],
                [(min(one[key]), max(one[key])) for one in records])


def reached(lines: list[Line]) -> list[float]:
    """All values that are drawn."""
    return [value for line in lines
            for value in (*(value for _, value in line.points), *sum(line.spread or [], ()))]


def threads(results: Results) -> str:
    ways = (("pipelined", "one thread that pipelines", GREY),
            ("shared", "one MultiplexedConnection", BLUE),
            ("hand", "a connection per thread", RED))
    lines = [curve(results.all(suite="growth", way=way), "pairs_per_second", label, colour,
                   "threads") for way, label, colour in ways]
    drawing = svg.Drawing(WIDTH, 440, "Locks taken and given back, by number of threads",
                          "Grey, the limit: all commands of a round in one write. Lines are medians, "
                          "bands the least and the most.")
    x = doublings("threads", [at for line in lines for at, _ in line.points])
    y = log_axis("cycles a second (logarithmic)", reached(lines))
    svg.line_chart(drawing, (70, 100, 580, 380), x, y, lines)
    return drawing.done()


def waiting(results: Results) -> str:
    ways = (("poll", "loop, every 10 ms", RED), ("own", "a connection each", GREEN),
            ("shared", "one connection", BLUE))
    drawing = svg.Drawing(WIDTH, 440, "Waiting for one key, by number of waiters",
                          "Waiters on one MultiplexedConnection line up: one of them asks. Lines are "
                          "medians, bands go to the 99th percentile.")
    asked, delays = [], []
    for way, label, colour in ways:
        records = sorted(results.all(suite="waiting", way=way), key=lambda one: one["waiters"])
        asked.append(Line(label, colour, [
            (one["waiters"], max(one["commands_per_second_while_held"], 0.1)) for one in records]))
        delays.append(Line(label, colour, [
            (one["waiters"], median(one["release_to_grant_ms"])) for one in records],
            [(median(one["release_to_grant_ms"]), percentile(one["release_to_grant_ms"], 99))
             for one in records]))
    x = doublings("waiters", [at for line in asked for at, _ in line.points])
    x.ticks = x.ticks[::2]
    svg.line_chart(drawing, (70, 110, 260, 380), x, log_axis("", reached(asked)), asked,
                   "commands a second while it is held")
    svg.line_chart(drawing, (470, 110, 660, 380), x, log_axis("", reached(delays), 0.1), delays,
                   "ms from a release to the next grant")
    return drawing.done()


def renewals(results: Results) -> str:
    records = results.all(suite="renewals")
    ttl = records[0]["ttl_ms"] // 1000
    lines = [
        curve(records, "percent_of_a_core_there", "the server", GREY, "leases"),
        curve(records, "percent_of_a_core_here", "the renewer's process", BLUE, "leases"),
    ]
    leases = [float(one["leases"]) for one in records]
    limit = Line("limit: 10 %", RED, [(min(leases), 10), (max(leases), 10)], dashed=True)
    drawing = svg.Drawing(WIDTH, 400, "Keeping leases, by how many are kept",
                          f"One renewer, one connection, ttl {ttl} s: each lease is renewed every "
                          f"{ttl // 3} s.")
    x = log_axis("leases kept", leases)
    y = log_axis("% of one core (logarithmic)", [*reached(lines), 10], 0.001)
    svg.line_chart(drawing, (70, 100, 590, 340), x, y, [limit, *lines])
    return drawing.done()


def cluster(results: Results) -> str:
    records = results.all(suite="cluster")
    masters = sorted({one["masters"] for one in records})
    threads_used = records[0]["threads"]
    lines = [
        curve(results.all(suite="cluster", way="shared"), "pairs_per_second",
              "one ClusterConnection", BLUE, "masters"),
        curve(results.all(suite="cluster", way="hand"), "pairs_per_second",
              "a connection per thread", RED, "masters"),
    ]
    top = max(reached(lines))
    step = 10 ** math.floor(math.log10(top))
    step = step / 2 if top / step < 3 else step
    ticks = [n * step for n in range(math.ceil(top / step) + 1)]
    drawing = svg.Drawing(WIDTH, 400, "A cluster, by number of masters",
                          f"{threads_used} threads; clients and all servers share the "
                          f"{results.about['machine']['cores']} cores of this machine.")
    svg.line_chart(drawing, (70, 100, 590, 340),
                   Axis("masters", min(masters), max(masters), masters, log=False),
                   Axis("cycles a second", 0, ticks[-1], ticks, log=False), lines)
    return drawing.done()


def peers(results: Results) -> str:
    drawing = svg.Drawing(WIDTH, 340, "Beside the locks of other languages",
                          "Cycles a second of one process, over one local server. A longer bar is "
                          "better.")
    names = list(dict.fromkeys(one["way"] for one in results.all(suite="peers")))
    for left, right, concurrent, title in ((190, 390, 1, "one at a time"),
                                           (480, 720, 64, "64 at the same time")):
        rows = []
        for name in names:
            found = results.one(suite="peers", way=name, concurrent=concurrent)
            ours = name == "MultiplexedConnection"
            rows.append(("leaselock" if ours else name, median(found["pairs_per_second"]),
                         BLUE if ours else GREY))
        svg.bars(drawing, (left, 105, right, 320), title, rows, named=concurrent == 1)
    return drawing.done()


FIGURES = {"threads": threads, "waiting": waiting, "renewals": renewals, "cluster": cluster,
           "peers": peers}


def draw(results: Results) -> dict[str, str]:
    return {f"{name}.svg": figure(results) for name, figure in FIGURES.items()}
