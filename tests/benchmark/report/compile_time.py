"""What it costs to compile a file that takes a lock with the library, beside one that takes it by hand
with hiredis and the same standard headers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "tests/benchmark/compile"
FLAGS = ["-std=c++20", f"-I{ROOT}/include", "-c"]
SEPARATE = "-DLEASELOCK_SEPARATE_COMPILATION"


def standard_headers(compiler: str, *flags: str) -> list[str]:
    """Those that the library's headers name, as far as leaselock.hpp reaches with these flags."""
    listing = subprocess.run(
        [compiler, *FLAGS[:2], *flags, "-M", SOURCES / "library.cpp"],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    named = set()
    for path in (path for path in listing if "/include/leaselock/" in path):
        named.update(re.findall(r"^#include <([a-z_]+)>", Path(path).read_text(), re.MULTILINE))
    return sorted(named.intersection(Path(path).name for path in listing))


def processor_seconds(command: list[str]) -> float:
    """Of the compiler and what it starts: other work on the machine disturbs it less than a clock."""
    process = subprocess.Popen(command)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"failed: {' '.join(command)}")
    return used.ru_utime + used.ru_stime


def precompile(folder: Path, compiler: str, level: str) -> Path:
    """As CMake's target_precompile_headers does it: compilers find what is beside the header."""
    header = folder / f"precompiled{level}.hpp"
    header.write_text("#include <leaselock/leaselock.hpp>\n")
    beside = f"{header}.{'pch' if 'clang' in compiler else 'gch'}"
    subprocess.run([compiler, *FLAGS[:2], level, "-x", "c++-header", str(header), "-o", beside],
                   check=True)
    return header


def by_hand(folder: Path, headers: list[str]) -> Path:
    file = folder / f"by_hand_{len(headers)}.cpp"
    file.write_text("".join(f"#include <{name}>\n" for name in headers)
                    + (SOURCES / "by_hand.cpp").read_text())
    return file


def measure(folder: Path, rounds: int) -> list[dict]:
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    definitions = folder / "definitions.cpp"
    definitions.write_text("#include <leaselock/definitions.ipp>\n")
    library = SOURCES / "library.cpp"
    for compiler in filter(shutil.which, ("g++", "clang++")):
        headers = {"by_hand": standard_headers(compiler),
                   "by_hand_separate": standard_headers(compiler, SEPARATE)}
        for level in ("-O0", "-O2"):
            files = {
                "library": [library],
                "precompiled": ["-include", precompile(folder, compiler, level), library],
                "by_hand": [by_hand(folder, headers["by_hand"])],
                "separate": [SEPARATE, library],
                "by_hand_separate": [by_hand(folder, headers["by_hand_separate"])],
                "definitions": [SEPARATE, definitions],
            }
            seconds: dict[str, list[float]] = {name: [] for name in files}
            for _ in range(rounds):
                for name, words in files.items():
                    target = folder / f"{name}.o"
                    command = [compiler, *FLAGS, level, *map(str, words), "-o", str(target)]
                    seconds[name].append(processor_seconds(command))
            for name in files:
                records.append({
                    "name": "compile", "compiler": compiler, "level": level, "file": name,
                    "processor_seconds": seconds[name],
                })
    return records
