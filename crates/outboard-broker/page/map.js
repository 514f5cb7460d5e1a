// The devices, by server.

import { attributes, element, keep, say } from './dom.js';
import { ago, bytes, percent } from './format.js';
import { CONDITIONS, stateOf } from './model.js';

function bar(kind) {
  return element('span', { class: kind ? `bar ${kind}` : 'bar', 'aria-hidden': 'true' },
    element('span'));
}

function fill(node, part) {
  node.firstElementChild.style.width = `${Math.min(100, Math.max(0, part))}%`;
}

function makeDevice() {
  const line = (name, extra = '') => element('p', { class: `${name} ${extra}`.trim() });
  return element('li', {},
    line('model', 'small'), line('state'), bar(''),
    line('memory', 'small'), bar('memory'),
    line('load', 'small'), bar('load'),
    line('holders', 'small'));
}

function showDevice(node, device) {
  const [model, state, takenBar, memory, memoryBar, load, loadBar, holders] = node.children;
  const [kind, words] = stateOf(device);
  attributes(node, { class: `device ${kind}`, title: device.uuid });
  const { major, minor } = device.capability;
  say(model, `${device.index} · ${device.model} · ${major}.${minor}`);
  say(state, words);
  fill(takenBar, device.taken);
  say(memory, `${bytes(device.free_bytes)} of ${bytes(device.memory_bytes)} free`);
  fill(memoryBar, device.filled);
  say(load, `${percent(device.load_percent)} busy`);
  fill(loadBar, device.load_percent);
  const one = ({ owner, part, lease, over }) =>
    `${owner}${part < 100 ? ` ${part} %` : ''} (lease ${lease}${over ? ', over' : ''})`;
  say(holders, device.holders.map(one).join(', '));
}

function makeServer() {
  const about = element('div', { class: 'about' },
    element('h3'), element('span', { class: 'badge' }), element('span'), element('span'));
  return element('article', {}, about, element('ul', { class: 'devices', role: 'list' }));
}

function showServer(node, server, now) {
  const [about, devices] = node.children;
  const [name, badge, labels, heard] = about.children;
  attributes(node, { class: `server ${server.state}`, 'aria-label': `server ${server.name}` });
  say(name, server.name);
  attributes(badge, { class: `badge ${server.state}` });
  say(badge, CONDITIONS[server.state] ?? server.state);
  const said = Object.entries(server.labels).map(([key, value]) => `${key}=${value}`);
  say(labels, [...said, server.driver && `driver ${server.driver}`].filter(Boolean).join(' · '));
  const isLate = server.state === 'silent';
  say(heard, isLate && server.heard ? `heard of ${ago(server.heard, now)} ago` : '');
  keep(devices, server.devices, (device) => device.uuid, makeDevice, showDevice);
}

export function showMap(parent, servers, none, now) {
  if (servers.length === 0) {
    parent.replaceChildren(element('p', { class: 'quiet' }, none));
    return;
  }
  // What was said of there being none has no key.
  for (const node of [...parent.children]) if (!node.dataset.key) node.remove();
  keep(parent, servers, (server) => server.name, makeServer,
    (node, server) => showServer(node, server, now));
}
