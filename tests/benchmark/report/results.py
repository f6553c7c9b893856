"""What was measured, and the ratios that it is asked for."""

from dataclasses import dataclass
from statistics import median, quantiles


class Results:
    def __init__(self, found: dict) -> None:
        self.about = found["about"]
        self.records = found["records"]

    def all(self, **wanted) -> list[dict]:
        return [one for one in self.records
                if all(one.get(key) == value for key, value in wanted.items())]

    def one(self, **wanted) -> dict:
        found = self.all(**wanted)
        if len(found) != 1:
            raise LookupError(f"{len(found)} records of {wanted}")
        return found[0]


def percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass
class Ratio:
    """A figure and its limit."""

    what: str
    rounds: list[float]
    limit: float | None  # none: for information
    at_least: bool
    unit: str = ""

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        kept = self.median >= self.limit if self.at_least else self.median <= self.limit
        return "ok" if kept else "missed"

    @property
    def asked(self) -> str:
        if self.limit is None:
            return "–"
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}{self.unit}"

    def text(self, value: float) -> str:
        return f"{value:.2f}{self.unit}"


def divided(a: list[float], b: list[float]) -> list[float]:
    """Round by round: what disturbs one round disturbs both sides of it."""
    return [x / y for x, y in zip(a, b)]


def rates(results: Results, suite: str, way: str, **wanted) -> list[float]:
    return results.one(suite=suite, way=way, **wanted)["pairs_per_second"]


def processor_time(results: Results, way: str) -> list[float]:
    return results.one(suite="one thread", way=way)["us_per_pair_here"]


def ratios(results: Results) -> list[Ratio]:
    one, many = "one thread", "64 threads"
    hand = rates(results, one, "hand")
    shared = rates(results, many, "shared")
    found = [
        Ratio("1 thread, `HiredisConnection` : hand-written loop, cycles a second",
              divided(rates(results, one, "own"), hand), 0.98, True),
        Ratio("1 thread, `MultiplexedConnection` : hand-written loop",
              divided(rates(results, one, "shared"), hand), None, True),
        Ratio("1 thread, hand-written loop : `HiredisConnection`, processor time of a cycle",
              divided(processor_time(results, "hand"), processor_time(results, "own")), None, True),
        Ratio("64 threads, one `MultiplexedConnection` : a hand-written connection each",
              divided(shared, rates(results, many, "hand")), 3, True),
        Ratio("64 threads, one `MultiplexedConnection` : raw pipelining by one thread",
              divided(shared, rates(results, many, "pipelined")), 0.35, True),
        Ratio("100,000 leases renewed, ttl 30 s: share of one core",
              results.one(suite="renewals", leases=100_000)["percent_of_a_core_here"], 10, False,
              " %"),
    ]
    delay = max(one["delay_ms"] for one in results.all(name="quorum"))
    five, alone = (results.one(name="quorum", nodes=n, delay_ms=delay) for n in (5, 1))
    for key, verbs in (("acquire_ms", "acquire"), ("pair_ms", "acquire and release")):
        found.append(Ratio(f"quorum of five : one node, time to {verbs}, {delay} ms there and back",
                           divided(five[key], alone[key]), 1.5, False))
    for file, how, limit in (("library", "", 1.3), ("precompiled", ", header precompiled", None),
                             ("separate", ", library compiled once", 1.3)):
        alone = "by_hand_separate" if file == "separate" else "by_hand"
        for ours in results.all(suite="compile", file=file):
            compiler, level = ours["compiler"], ours["level"]
            hand = results.one(suite="compile", file=alone, compiler=compiler, level=level)
            found.append(
                Ratio(f"compile time of a file, `{compiler} {level}`{how} : with hiredis alone",
                      divided(ours["processor_seconds"], hand["processor_seconds"]), limit, False))
    return found


def steps(results: Results) -> list[tuple[str, float]]:
    return [(one["step"], median(one["nanoseconds"])) for one in results.all(suite="steps")]
