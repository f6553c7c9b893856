// Acquire-and-release cycles of the lock packages of npm, over ioredis.
//
//   node cycles.mjs PACKAGE PORT CONCURRENT SECONDS
//
// CONCURRENT loops in one process, each on a key of its own, as a service would have them: all over one
// client, which pipelines what they ask for. Prints one line of JSON. Packages are those of the folder
// that it is run in.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.cwd(), 'package.json'));
const [name, port, concurrent, seconds] = process.argv.slice(2);
const ttl = 30000;

// Each gives a function that takes the key once, without trying again, and gives it back.
const packages = {
  redlock(client) {
    const Redlock = require('redlock');
    const redlock = new Redlock([client], { retryCount: 0 });
    return (key) => async () => (await redlock.lock(key, ttl)).unlock();
  },
  'redis-semaphore'(client) {
    const { Mutex } = require('redis-semaphore');
    return (key) => {
      const mutex = new Mutex(client, key, {
        lockTimeout: ttl,
        refreshInterval: 0,
        acquireAttemptsLimit: 1,
      });
      return async () => {
        await mutex.acquire();
        await mutex.release();
      };
    };
  },
  'redlock-universal'(client) {
    const { createLock, IoredisAdapter } = require('redlock-universal');
    const adapter = new IoredisAdapter(client);
    return (key) => {
      const lock = createLock({ adapter, key, ttl, retryAttempts: 0 });
      return async () => {
        if (!(await lock.release(await lock.acquire()))) throw new Error('not released');
      };
    };
  },
};

const { Redis } = require('ioredis');
const client = new Redis(Number(port), '127.0.0.1');
const lock_of = packages[name](client);
const cycles = Array.from({ length: Number(concurrent) }, (_, i) => lock_of(`lock:${name}:${i}`));
await Promise.all(cycles.map((cycle) => cycle())); // connects, loads scripts

const start = process.hrtime.bigint();
const end = start + BigInt(Math.round(Number(seconds) * 1e9));
let count = 0;
await Promise.all(
  cycles.map(async (cycle) => {
    while (process.hrtime.bigint() < end) {
      await cycle();
      ++count;
    }
  }),
);
const took = Number(process.hrtime.bigint() - start) / 1e9;
console.log(JSON.stringify({ pairs_per_second: count / took }));
await client.quit();
