"""Measures, and reports. ./tests/benchmark/run is how to start it; it has found and built the rest."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import figures
import measure
import readme
from results import Results, ratios

RECORDED = measure.ROOT / readme.FOLDER
README = measure.ROOT / "README.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/benchmark/run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes; figures are rough")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio is missed")
    parser.add_argument("--record", action="store_true",
                        help=f"write {readme.FOLDER} and the README's figures, too")
    parser.add_argument("--out", type=Path, default=measure.ROOT / "build/benchmark",
                        help="where results.json and the plots go (build/benchmark)")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE",
                        help="measure nothing: report on this results.json")
    parser.add_argument("--verify", action="store_true",
                        help="measure nothing: exit with 1 when the README or a recorded plot is not "
                             "what the recorded results give")
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--npm", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.record and chosen.quick:
        parser.error("--quick is too rough for --record")
    return chosen


def verify() -> int:
    results = Results(json.loads((RECORDED / "results.json").read_text()))
    wrong = [name for name, drawn in figures.draw(results).items()
             if (RECORDED / name).read_text() != drawn]
    if readme.parts(README.read_text())[1] != readme.block(results):
        wrong.append("README.md")
    for name in wrong:
        print(f"{name} is not what {readme.FOLDER}/results.json gives: "
              f"./tests/benchmark/run --from {readme.FOLDER}/results.json --record")
    return 1 if wrong else 0


def write(folder: Path, found: dict, plots: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = ",\n".join(json.dumps(one) for one in found["records"])
    about = json.dumps(found["about"], indent=1)
    (folder / "results.json").write_text(f'{{"about": {about},\n"records": [\n{records}\n]}}\n')
    for name, drawn in plots.items():
        (folder / name).write_text(drawn)


def main() -> int:
    chosen = arguments()
    if chosen.verify:
        return verify()
    if chosen.source:
        found = json.loads(chosen.source.read_text())
    else:
        chosen.out.mkdir(parents=True, exist_ok=True)
        session = measure.Session(chosen.programs, chosen.out, chosen.npm, chosen.quick)
        words = "".join(f" {word}" for word in ("--quick", "--record")
                        if getattr(chosen, word.strip("-")))
        found = measure.measure(session, f"./tests/benchmark/run{words}")
    results = Results(found)
    plots = figures.draw(results)
    write(chosen.out, found, plots)
    print(f"\n{readme.for_terminal(results)}\n")
    for reason in results.about["left_out"]:
        print(f"left out: {reason}")
    print(f"measured in {results.about['seconds']} s; results.json and the plots: {chosen.out}")
    if chosen.record:
        write(RECORDED, found, plots)
        before, _, behind = readme.parts(README.read_text())
        README.write_text(before + readme.block(results) + behind)
        print(f"recorded: {readme.FOLDER}, README.md")
    missed = [ratio.what for ratio in ratios(results) if ratio.verdict == "missed"]
    for what in missed:
        print(f"missed: {what.replace('`', '')}")
    return 1 if missed and chosen.check else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, subprocess.CalledProcessError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(2)
