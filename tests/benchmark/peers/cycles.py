"""Acquire-and-release cycles of redis-py's Lock.

    /usr/bin/python3 cycles.py PORT CONCURRENT SECONDS

One: the blocking client. More: so many tasks of asyncio in one process, each on a key of its own,
over one client with its pool. Prints one line of JSON.
"""

import asyncio
import json
import sys
import time

import redis
import redis.asyncio

TTL = 30


def one(port: int, seconds: float) -> float:
    lock = redis.Redis(port=port).lock("lock:redis-py:0", timeout=TTL)

    def cycle() -> None:
        if not lock.acquire(blocking=False):
            raise RuntimeError("not acquired")
        lock.release()

    cycle()  # connects, loads scripts
    start = time.monotonic()
    count = 0
    while time.monotonic() < start + seconds:
        cycle()
        count += 1
    return count / (time.monotonic() - start)


async def many(port: int, concurrent: int, seconds: float) -> float:
    client = redis.asyncio.Redis(port=port)
    locks = [
        client.lock(f"lock:redis-py:{i}", timeout=TTL) for i in range(concurrent)
    ]

    async def cycle(lock) -> None:
        if not await lock.acquire(blocking=False):
            raise RuntimeError("not acquired")
        await lock.release()

    await asyncio.gather(*(cycle(lock) for lock in locks))
    start = time.monotonic()
    count = 0

    async def loop(lock) -> None:
        nonlocal count
        while time.monotonic() < start + seconds:
            await cycle(lock)
            count += 1

    await asyncio.gather(*(loop(lock) for lock in locks))
    return count / (time.monotonic() - start)


def main() -> None:
    port, concurrent, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    rate = one(port, seconds) if concurrent == 1 else asyncio.run(many(port, concurrent, seconds))
    print(json.dumps({"pairs_per_second": rate}))


if __name__ == "__main__":
    main()
