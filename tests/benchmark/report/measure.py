"""Runs everything that is measured, one after the other, on private servers."""

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import compile_time

ROOT = compile_time.ROOT
PEERS = ROOT / "tests/benchmark/peers"
NPM_PACKAGES = ("redlock", "redis-semaphore", "redlock-universal")
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-redis is for


@dataclass
class Session:
    programs: Path  # where the C++ ones are
    out: Path
    npm: Path  # where the npm packages are, if they are
    quick: bool

    def __post_init__(self) -> None:
        self.records: list[dict] = []
        self.left_out: list[str] = []

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def run(self, program: str, suite: str, **arguments) -> None:
        """One of ours. `rounds=3` is `--rounds 3`."""
        found = self.out / "records.json"
        words = [str(self.programs / f"leaselock_{program}"), "--json", str(found)]
        for name, value in arguments.items():
            words += [f"--{name}", str(value)]
        start = time.monotonic()
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
        self.records += [{"suite": suite, **record} for record in json.loads(found.read_text())]
        found.unlink()
        self.say(f"{suite}: {time.monotonic() - start:.0f} s")


@contextlib.contextmanager
def private_server():
    """A Redis on a free port; yields the port."""
    with tempfile.TemporaryDirectory(prefix="leaselock-benchmark-") as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen(
            [os.environ["REDIS_SERVER"], "--bind", "127.0.0.1", "--port", str(port), "--dir", folder,
             "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL,
        )
        try:
            for _ in range(1000):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.01)
            yield port
        finally:
            server.kill()
            server.wait()


def threads(session: Session) -> None:
    quick = session.quick
    session.run("many_threads", "one thread", threads=1,
                rounds=9 if quick else 25, ms=100 if quick else 200)
    session.run("many_threads", "64 threads", threads=64,
                rounds=3 if quick else 11, ms=300 if quick else 700)
    counts = (1, 4, 16, 64, 256) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    session.run("many_threads", "growth", threads=",".join(map(str, counts)),
                rounds=1 if quick else 3, ms=150 if quick else 500)


def ours(session: Session, way: str):
    """A contestant: pairs a second of so many concurrent loops, on the server with that port."""

    def rate(port: int, concurrent: int, seconds: float) -> float:
        found = session.out / "records.json"
        subprocess.run(
            [session.programs / "leaselock_many_threads", "--port", str(port), "--only", way,
             "--threads", str(concurrent), "--rounds", "1", "--ms", str(round(seconds * 1000)),
             "--json", found],
            check=True, stdout=subprocess.DEVNULL,
        )
        record = json.loads(found.read_text())[0]
        found.unlink()
        return record["pairs_per_second"][0]

    return rate


class PeerFailure(Exception):
    """Another library does not run here. That ours does not is no such thing."""


def theirs(words: list[str], folder: Path, before_port: tuple[str, ...] = ()):
    def rate(port: int, concurrent: int, seconds: float) -> float:
        command = [*words, *before_port, str(port), str(concurrent), str(seconds)]
        try:
            answer = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True,
                                    timeout=120).stdout
            return json.loads(answer)["pairs_per_second"]
        except subprocess.CalledProcessError as failure:
            said = failure.stderr.strip().splitlines()
            raise PeerFailure(said[-1] if said else "it failed without a word") from failure
        except subprocess.TimeoutExpired as failure:
            raise PeerFailure("it did not end") from failure

    return rate


def find_contestants(session: Session) -> dict:
    found = {
        "MultiplexedConnection": ours(session, "shared"),
        "by hand, hiredis": ours(session, "hand"),
    }
    try:
        subprocess.run([PYTHON, "-c", "import redis.asyncio"], check=True, capture_output=True)
        found["redis-py Lock"] = theirs([PYTHON, str(PEERS / "cycles.py")], PEERS)
    except (OSError, subprocess.CalledProcessError):
        session.left_out.append(f"redis-py: {PYTHON} has no module redis.asyncio")
    for name in NPM_PACKAGES:
        if shutil.which("node") and (session.npm / "node_modules" / name).is_dir():
            found[name] = theirs(["node", str(PEERS / "cycles.mjs")], session.npm, (name,))
        else:
            session.left_out.append(f"{name}: no node, or npm could not install it")
    return found


def peers(session: Session) -> None:
    contestants = find_contestants(session)
    rounds, seconds = (1, 0.4) if session.quick else (5, 1.0)
    start = time.monotonic()
    rates: dict[tuple[str, int], list[float]] = {}
    with private_server() as port:
        for _ in range(rounds):
            for concurrent in (1, 64):
                for name in list(contestants):
                    try:
                        rate = contestants[name](port, concurrent, seconds)
                    except PeerFailure as failure:
                        session.left_out.append(f"{name}: {failure}")
                        del contestants[name]
                        continue
                    rates.setdefault((name, concurrent), []).append(rate)
    for (name, concurrent), found in rates.items():
        if name in contestants:
            session.records.append({
                "suite": "peers", "name": "peers", "way": name, "concurrent": concurrent,
                "pairs_per_second": found,
            })
    session.say(f"peers: {time.monotonic() - start:.0f} s")


def waiting(session: Session) -> None:
    if session.quick:
        session.run("waiters", "waiting", waiters="1,16,256", held=500, grants=30, most=1200)
    else:
        session.run("waiters", "waiting", waiters="1,4,16,64,256", held=1500, grants=100, most=4000)


def renewals(session: Session) -> None:
    if session.quick:
        session.run("renewals", "renewals", leases="100,100000", periods=1)
    else:
        session.run("renewals", "renewals", leases="1,10,100,1000,10000", periods=1)
        session.run("renewals", "renewals", leases=100_000, periods=3)


def quorum(session: Session) -> None:
    session.run("quorum", "quorum",
                rounds=3 if session.quick else 10, each=10 if session.quick else 20, delay=10)


def cluster(session: Session) -> None:
    session.run("cluster", "cluster",
                rounds=2 if session.quick else 5, ms=200 if session.quick else 700)


def steps(session: Session) -> None:
    """Google Benchmark, where it is."""
    program = session.programs / "leaselock_micro"
    if not program.exists():
        session.left_out.append("single steps: libbenchmark-dev is not here")
        return
    found = session.out / "records.json"
    start = time.monotonic()
    subprocess.run(
        [program, f"--benchmark_repetitions={3 if session.quick else 7}",
         f"--benchmark_min_time={0.02 if session.quick else 0.1}",
         "--benchmark_enable_random_interleaving=true", "--benchmark_out_format=json",
         f"--benchmark_out={found}"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    times: dict[str, list[float]] = {}
    for run in json.loads(found.read_text())["benchmarks"]:
        if run["run_type"] == "iteration":
            name = run["run_name"].removesuffix("/real_time")
            times.setdefault(name, []).append(run["real_time"])
    found.unlink()
    for name, nanoseconds in sorted(times.items()):
        session.records.append(
            {"suite": "steps", "name": "step", "step": name, "nanoseconds": nanoseconds})
    session.say(f"single steps: {time.monotonic() - start:.0f} s")


def compiling(session: Session) -> None:
    start = time.monotonic()
    for record in compile_time.measure(session.out / "compile", 1 if session.quick else 3):
        session.records.append({"suite": "compile", **record})
    session.say(f"compile time: {time.monotonic() - start:.0f} s")


SUITES = (threads, peers, waiting, renewals, quorum, cluster, steps, compiling)


def first_line(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return answer.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def versions(session: Session) -> dict:
    found = {
        "server": first_line(os.environ["REDIS_SERVER"], "--version").split(" sha=")[0],
        "hiredis": first_line("pkg-config", "--modversion", "hiredis"),
        "g++": first_line("g++", "-dumpfullversion"),
        "clang++": first_line("clang++", "-dumpversion"),
        "redis-py": first_line(PYTHON, "-c", "import redis; print(redis.__version__)"),
        "node": first_line("node", "--version").lstrip("v"),
    }
    for name in ("ioredis", *NPM_PACKAGES):
        package = session.npm / "node_modules" / name / "package.json"
        if package.exists():
            found[name] = json.loads(package.read_text())["version"]
    return {name: version for name, version in found.items() if version}


def machine() -> dict:
    cpu = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in cpu.splitlines()
                  if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return {
        "processor": model, "cores": os.cpu_count(), "memory_gib": round(memory / 2**20),
        "system": system, "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def rounded(value):
    """Six digits are more than any of this is worth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return value


def measure(session: Session, command: str) -> dict:
    about = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "commit": first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "machine": machine(),
        "versions": versions(session),
    }
    start = time.monotonic()
    for suite in SUITES:
        suite(session)
    about["seconds"] = round(time.monotonic() - start)
    about["left_out"] = session.left_out
    records = [{key: rounded(value) for key, value in one.items()} for one in session.records]
    return {"about": about, "records": records}
