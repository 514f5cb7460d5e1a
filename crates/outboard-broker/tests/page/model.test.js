// The parts of the page that need no browser.

import assert from 'node:assert/strict';
import test from 'node:test';

import { area, ceiling, line, mean, runs } from '../../page/chart.js';
import { ago, bytes, duration, number, percent } from '../../page/format.js';
import * as model from '../../page/model.js';
import { isToken } from '../../page/visitor.js';

const device = (uuid, change = {}) => ({
  uuid, model: 'H100', capability: { major: 9, minor: 0 }, memory_bytes: 80, free_bytes: 80,
  free_percent: 100, load_percent: 0, health: 'well', leases: [], ...change,
});
const server = (name, devices, change = {}) => ({
  name, labels: { rack: 'r7' }, condition: 'ready', because: null, devices, ...change,
});
const lease = (number, owner, granted, change = {}) => ({
  number, owner, asked_by: 'slurm', group: 'g', over: null, devices: granted, ...change,
});
const whole = { server: 'gpu1', device: 'a', usage: 'exclusive' };
const part = { server: 'gpu1', device: 'b', usage: { shared: 25 } };

function view() {
  return {
    servers: [
      server('gpu1', [
        device('a', { free_percent: 0, free_bytes: 0, load_percent: 90, leases: [1] }),
        device('b', { free_percent: 75, free_bytes: 20, load_percent: 30, leases: [2] }),
        device('c', { health: 'ill' }),
      ]),
      server('gpu2', [device('a')], { condition: 'silent' }),
      server('gpu3', [], { condition: 'draining', because: 'it owes' }),
    ],
    leases: [lease(1, 'ada', [whole]), lease(2, 'bob', [part], { over: 'it was ended' })],
    queue: [{ place: 1 }],
  };
}

test('a pool is added up without what cannot be used', () => {
  assert.deepEqual(model.totals(view()), {
    devices: 2, all: 4, leased: 1.25, load: 60, memory: 160, free: 20, waiting: 1, leases: 2,
    servers: 3, ready: 1,
  });
  assert.equal(model.totals({ servers: [], leases: [], queue: [] }).load, 0);
});

test('devices know who has them', () => {
  const [first] = model.servers(view());
  const states = first.devices.map((one) => model.stateOf(one)[0]);
  assert.deepEqual(states, ['taken', 'part', 'ill']);
  assert.deepEqual(first.devices[1].holders,
    [{ owner: 'bob', part: 25, lease: 2, over: 'it was ended' }]);
  assert.equal(first.devices[1].filled, 75);
  // A lease that the view lacks is nobody's.
  const gone = view();
  gone.leases = [];
  assert.deepEqual(model.servers(gone)[0].devices[0].holders, []);
});

test('devices have the names that people give them', () => {
  const name = model.names(view());
  assert.deepEqual([whole, part].map(name), ['gpu1/0', 'gpu1/1']);
  assert.equal(name({ server: 'gone', device: 'GPU-1' }), 'gone/GPU-1');
});

test('a server that owes is told from one that drains', () => {
  assert.deepEqual(model.servers(view()).map((one) => one.state), ['ready', 'silent', 'owes']);
  assert.equal(model.conditionOf(server('x', [], { condition: 'draining' })), 'draining');
});

test('servers and devices are found by what is said of them', () => {
  const found = (text) => model.matching(model.servers(view()), text)
    .map((one) => `${one.name}:${one.devices.length}`);
  assert.deepEqual(found(' '), ['gpu1:3', 'gpu2:1', 'gpu3:0']);
  assert.deepEqual(found('BOB'), ['gpu1:1']);
  assert.deepEqual(found('silent'), ['gpu2:1']);
  assert.deepEqual(found('rack=r7'), ['gpu1:3', 'gpu2:1', 'gpu3:0']);
  assert.deepEqual(found('.*'), []);
});

test('clients end leases of their own, admins all, viewers none', () => {
  const [adas, over] = view().leases;
  const may = (role, owner, of) => model.mayEnd({ role, owner }, of);
  assert.deepEqual([may('client', 'ada', adas), may('client', 'bob', adas)], [true, false]);
  assert.deepEqual([may('admin', 'root', adas), may('admin', 'root', over)], [true, false]);
  assert.deepEqual([may('scheduler', 'slurm', adas), may('scheduler', 'ada', adas)], [true, false]);
  assert.deepEqual([may('viewer', 'ada', adas), may(null, null, adas)], [false, false]);
});

test('a busy broker is asked less often', () => {
  assert.deepEqual([10, 500, 1e6].map(model.pause), [2000, 5000, 30000]);
});

test('numbers are short', () => {
  assert.deepEqual([0, 1023, 1536, 80 * 2 ** 30, 1.5 * 2 ** 40].map(bytes),
    ['0 B', '1023 B', '1.5 KiB', '80 GiB', '1.5 TiB']);
  assert.deepEqual([0, 59.6, 61, 3600, 90061].map(duration),
    ['0 s', '1 min', '1 min 1 s', '1 h', '1 d 1 h']);
  assert.equal(duration(-5), '0 s');
  assert.equal(ago('2026-11-25T10:00:00Z', Date.parse('2026-11-25T10:00:05Z')), '5 s');
  assert.deepEqual([number(1.25), number(3), percent(49.6)], ['1.3', '3', '50 %']);
});

test('a gap in the past is a gap in the line', () => {
  assert.deepEqual(runs([1, null, 2, 3, Number.NaN]), [[[0, 1]], [[2, 2], [3, 3]]]);
  assert.equal(line([0, null, 10], 10, 30, 10), 'M0 10L10 10M20 0L30 0');
  assert.equal(area([5], 10, 10, 10), 'M0 5L10 5L10 10L0 10Z');
  assert.equal(line([99, -1], 10, 20, 10), 'M0 0L10 0L10 10L20 10');
  assert.equal(line([], 10, 20, 10), '');
});

test('scales are round', () => {
  assert.deepEqual([0, 1, 1.5, 3, 10, 11, 600].map(ceiling), [1, 1, 2, 5, 10, 20, 1000]);
  assert.equal(ceiling(Number.NaN), 1);
  assert.equal(mean([null, 1, 3]), 2);
  assert.equal(mean([null]), null);
});

test('what is no token is not sent', () => {
  assert.ok(isToken('obt_abc-1'));
  for (const wrong of ['', 'a b', 'a\nb', 'ä', '\u{200b}x']) assert.ok(!isToken(wrong), wrong);
});
