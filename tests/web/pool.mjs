// A pool for tests: a real broker, real servers on the software device, real programs.

import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The installation under test, and its programs: `cargo xtask web` says where they are. */
const OUTBOARD = join(process.env.OUTBOARD_TEST_DIST ?? '', 'bin/outboard');
const PROGRAMS = process.env.OUTBOARD_TEST_PROGRAMS ?? '';
const PATIENCE = 60_000;

/** What no test inherits. */
const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith('OUTBOARD_')),
);
const ENVIRONMENT = { ...environment, OUTBOARD_CONFIG: 'none' };

/** Waits until `look` gives something. */
export async function until(what, look) {
  const late = Date.now() + PATIENCE;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > late) throw new Error(`waited in vain: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

/** A process of the pool, whose log is kept. */
class Running {
  constructor(args, env = {}) {
    this.said = '';
    const options = { env: { ...ENVIRONMENT, ...env }, stdio: ['pipe', 'pipe', 'pipe'] };
    this.child = spawn(OUTBOARD, args, options);
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.on('data', (text) => { this.said += text; });
    }
    this.over = new Promise((end) => { this.child.once('exit', end); });
  }

  /** What a pattern finds in the log, once it does. */
  async find(pattern) {
    return until(`${pattern} in:\n${this.said}`, () => {
      if (this.child.exitCode !== null && !pattern.test(this.said)) {
        throw new Error(`it has ended; it said:\n${this.said}`);
      }
      return pattern.exec(this.said);
    });
  }

  async end() {
    this.child.kill('SIGTERM');
    const late = setTimeout(() => this.child.kill('SIGKILL'), 5000);
    await this.over;
    clearTimeout(late);
  }
}

export class Pool {
  static async start(flags = []) {
    const pool = new Pool();
    pool.folder = mkdtempSync(join(tmpdir(), 'outboard-web-'));
    pool.state = join(pool.folder, 'broker');
    pool.flags = flags;
    pool.all = [];
    await pool.startBroker('127.0.0.1:0');
    pool.serverToken = pool.token('server', 'servers');
    return pool;
  }

  async startBroker(listen) {
    this.broker = new Running([
      'broker', '--listen', listen, '--state', this.state,
      // These servers are only played, and have no keys.
      '--allow-unproven-servers', ...this.flags,
    ]);
    const found = await this.broker.find(/brokering address=(\S+) fingerprint=(\S+)/);
    [, this.address, this.fingerprint] = found;
    this.url = `https://${this.address}`;
  }

  /** Ends the broker, and starts it again a while later. */
  async restartBroker(meanwhile) {
    await this.broker.end();
    await meanwhile();
    await this.startBroker(this.address);
  }

  token(role, owner) {
    const args = ['token', 'create', '--json', '--broker', '--state', this.state];
    args.push('--role', role, '--owner', owner);
    const made = spawnSync(OUTBOARD, args, { env: ENVIRONMENT });
    return JSON.parse(made.stdout).token;
  }

  variables(token) {
    return {
      OUTBOARD_POOL: this.url,
      OUTBOARD_POOL_FINGERPRINT: this.fingerprint,
      OUTBOARD_POOL_TOKEN: token,
    };
  }

  /** A real server with so many software devices. */
  async serve(name, devices, labels = []) {
    const token = join(this.folder, 'token');
    writeFileSync(token, this.serverToken, { mode: 0o600 });
    const server = new Running([
      'serve', '--listen', '127.0.0.1:0', '--driver', 'cpu', '--tls', 'on', '--socket', 'none',
      '--admin', 'none', '--warm', '1', '--state', join(this.folder, name),
      '--image-cache', 'off', '--records', 'none', '--drain', '0',
      '--pool', this.url, '--pool-fingerprint', this.fingerprint, '--pool-token-file', token,
      '--pool-name', name, ...labels.flatMap((label) => ['--label', label]),
    ], { OUTBOARD_CPU_DEVICES: String(devices), XDG_CACHE_HOME: join(this.folder, 'cache') });
    this.all.push(server);
    const admin = this.token('viewer', 'tests');
    await until(`${name} registers; it says:\n${server.said}`, async () => {
      const view = await this.ask('GET', '/v1/pool', admin);
      return view.servers.some((one) => one.name === name);
    });
    return server;
  }

  /** Runs a shell with so many devices, until it is ended; `$programs` has those of the tests. */
  async run(token, flags, isGranted = true, script = 'echo ready; exec cat') {
    const variables = { ...this.variables(token), programs: PROGRAMS };
    const program = new Running(['run', ...flags, '--', 'sh', '-c', script], variables);
    this.all.push(program);
    if (isGranted) await program.find(/ready/);
    return program;
  }

  /** Asks the broker as somebody with that token. */
  ask(method, path, token, body = null) {
    const options = {
      method,
      rejectUnauthorized: false,
      agent: false,
      headers: { authorization: `Bearer ${token}` },
    };
    return new Promise((answer, fail) => {
      const request = https.request(`${this.url}${path}`, options, (response) => {
        let said = '';
        response.on('data', (text) => { said += text; });
        response.on('end', () => {
          if (response.statusCode === 200) answer(JSON.parse(said));
          else fail(new Error(`${path}: ${response.statusCode} ${said}`));
        });
      });
      request.on('error', fail);
      request.end(body === null ? undefined : JSON.stringify(body));
    });
  }

  /** A server that says of itself what it likes, as often as a server does. */
  pretend(server) {
    const beat = {
      server: { driver: '580.1', labels: {}, condition: 'ready', ...server },
      address: 'pretended:9470', fingerprint: null, release: '0.1.0', in_use: [], gone: [],
    };
    const say = () => this.ask('POST', '/v1/beat', this.serverToken, beat);
    const timer = setInterval(() => say().catch(() => {}), 1000);
    timer.unref();
    this.all.push({ end: async () => clearInterval(timer) });
    return say();
  }

  async end() {
    await Promise.all(this.all.reverse().map((one) => one.end()));
    await this.broker.end();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A device as servers describe them. */
export function device(uuid, model, change = {}) {
  return {
    uuid, model, memory_bytes: 80 * 2 ** 30, capability: { major: 9, minor: 0 }, nvlink: [],
    load_percent: 0, health: 'well', ...change,
  };
}
