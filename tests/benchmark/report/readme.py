"""The figures in the README, between two markers, so that they cannot disagree with the results."""

from statistics import median

from results import Results, percentile, ratios, steps
from svg import number

BEGIN = "<!-- benchmark:begin (./tests/benchmark/run --record writes what is between these) -->"
END = "<!-- benchmark:end -->"
FOLDER = "tests/benchmark/results"
ALT = {
    "threads": "Cycles a second for 1 to 256 threads",
    "peers": "Cycles a second beside redis-py and three npm packages",
    "waiting": "What waiting costs, for 1 to 256 waiters",
    "renewals": "What renewing costs, for 1 to 100,000 leases",
    "cluster": "Cycles a second for one to three masters",
}


def described(results: Results) -> str:
    about, machine = results.about, results.about["machine"]
    versions = ", ".join(
        version if name == "server" else f"{name} {version}"
        for name, version in about["versions"].items())
    text = (f"`{about['command']}`, {about['date']}: {machine['processor']}, {machine['cores']} cores"
            f" shared by clients and servers, {machine['memory_gib']} GiB, {machine['system']}. "
            f"{versions}.")
    if machine["load_before"] >= 0.5:
        text += f" Other work ran beside it: the load was {machine['load_before']}."
    if about["left_out"]:
        text += f" Left out: {'; '.join(about['left_out'])}."
    return text


def table(results: Results) -> str:
    lines = ["| ratio | median | rounds | asked | |", "|---|---|---|---|---|"]
    for ratio in ratios(results):
        least, most = (ratio.text(pick(ratio.rounds)) for pick in (min, max))
        lines.append(f"| {ratio.what} | {ratio.text(ratio.median)} | {least} … {most} | "
                     f"{ratio.asked} | {ratio.verdict} |")
    return "\n".join(lines)


def block(results: Results) -> str:
    images = "\n\n".join(f"![{text}]({FOLDER}/{name}.svg)" for name, text in ALT.items())
    return f"{BEGIN}\n{described(results)}\n\n{table(results)}\n\n{images}\n{END}"


def parts(text: str) -> tuple[str, str, str]:
    """Before, between and behind the markers, these with what is between."""
    before, begin, rest = text.partition(BEGIN)
    between, end, behind = rest.partition(END)
    if not begin or not end:
        raise LookupError("the README has lost its benchmark markers")
    return before, begin + between + end, behind


def for_terminal(results: Results) -> str:
    rows = [(ratio.what.replace("`", ""), ratio.text(ratio.median),
             f"{ratio.text(min(ratio.rounds))} … {ratio.text(max(ratio.rounds))}", ratio.asked,
             ratio.verdict) for ratio in ratios(results)]
    rows.insert(0, ("ratio", "median", "rounds", "asked", ""))
    wide = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, wide)).rstrip()
             for row in rows]
    lines += ["", "cycles a second (medians)               1 at a time   64 at the same time"]
    for one in results.all(suite="peers", concurrent=1):
        many = results.one(suite="peers", way=one["way"], concurrent=64)
        lines.append(f"{one['way']:<38} {number(median(one['pairs_per_second'])):>12} "
                     f"{number(median(many['pairs_per_second'])):>21}")
    lines += ["", "waiting for one key             waiters   commands/s   ms to next grant   99 %"]
    names = {"shared": "one MultiplexedConnection", "own": "a HiredisConnection each",
             "poll": "by hand, every 10 ms"}
    for one in results.all(suite="waiting"):
        delays = one["release_to_grant_ms"]
        lines.append(f"{names[one['way']]:<30} {one['waiters']:>8} "
                     f"{number(one['commands_per_second_while_held']):>12} "
                     f"{number(median(delays)):>18} {number(percentile(delays, 99)):>6}")
    lines += ["", "nanoseconds for one step"]
    lines += [f"{name:<38} {number(nanoseconds):>12}" for name, nanoseconds in steps(results)]
    return "\n".join(lines)
