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


def standard_headers(compiler: str) -> list[str]:
    """Those that the library's headers name, as far as leaselock.hpp reaches."""
    listing = subprocess.run(
        [compiler, *FLAGS[:2], "-M", SOURCES / "library.cpp"],
        capture_output=True, text=True, check=True,
    ).stdout
    found = set()
    for path in re.findall(r"\S*/include/leaselock/\S+", listing):
        found.update(re.findall(r"^#include <([a-z_]+)>", Path(path).read_text(), re.MULTILINE))
    return sorted(found)


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


def measure(folder: Path, rounds: int) -> list[dict]:
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for compiler in filter(shutil.which, ("g++", "clang++")):
        headers = standard_headers(compiler)
        by_hand = folder / "by_hand.cpp"
        by_hand.write_text(
            "".join(f"#include <{name}>\n" for name in headers)
            + (SOURCES / "by_hand.cpp").read_text()
        )
        for level in ("-O0", "-O2"):
            files = {
                "library": [SOURCES / "library.cpp"],
                "precompiled": ["-include", precompile(folder, compiler, level),
                                SOURCES / "library.cpp"],
                "by_hand": [by_hand],
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
                    "standard_headers": len(headers), "processor_seconds": seconds[name],
                })
    return records
