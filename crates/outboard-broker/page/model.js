// What the broker says, as the page shows it. No element, no request: what is tested without a
// browser.

/** The part of a device that a lease has, in percent. */
export function partOf(granted) {
  return granted.usage === 'exclusive' ? 100 : granted.usage.shared;
}

/** Whether a server gets leases: `owes` is one that has yet to end what is over. */
export function conditionOf(server) {
  return server.condition === 'draining' && server.because ? 'owes' : server.condition;
}

export const CONDITIONS = {
  ready: 'ready',
  draining: 'draining: no new leases',
  owes: 'owes an answer: no new leases until it has ended what is over',
  silent: 'silent: no new leases',
};

/** Who has which part of a device: `[{ owner, part, lease, over }]`. */
function holders(server, device, leases) {
  return device.leases.flatMap((number) => {
    const lease = leases.get(number);
    if (!lease) return [];
    const on = lease.devices.filter(
      (one) => one.server === server.name && one.device === device.uuid,
    );
    return on.map((one) => ({
      owner: lease.owner, part: partOf(one), lease: number, over: lease.over,
    }));
  });
}

/** The servers with their devices, each with who has it and how full it is, in percent. */
export function servers(view) {
  const leases = new Map(view.leases.map((lease) => [lease.number, lease]));
  return view.servers.map((server) => ({
    ...server,
    state: conditionOf(server),
    devices: server.devices.map((device, index) => ({
      ...device,
      index,
      holders: holders(server, device, leases),
      taken: 100 - device.free_percent,
      filled: device.memory_bytes > 0
        ? (100 * (device.memory_bytes - device.free_bytes)) / device.memory_bytes : 0,
    })),
  }));
}

/** How people name devices, by server and UUID: `gpu1/2`. */
export function names(view) {
  const all = view.servers.flatMap((server) => server.devices.map(
    (device, index) => [`${server.name} ${device.uuid}`, `${server.name}/${index}`],
  ));
  const known = new Map(all);
  return ({ server, device }) => known.get(`${server} ${device}`) ?? `${server}/${device}`;
}

/** What a device is, in a word, and the class of its tile. */
export function stateOf(device) {
  if (device.health !== 'well') return ['ill', 'ill: nobody gets it'];
  if (device.taken >= 100) return ['taken', 'taken'];
  if (device.taken > 0) return ['part', `${device.taken} % taken`];
  return ['free', 'free'];
}

/** The numbers of the whole pool. */
export function totals(view) {
  const able = view.servers.filter((server) => server.condition !== 'silent')
    .flatMap((server) => server.devices)
    .filter((device) => device.health === 'well');
  const sum = (of) => able.reduce((total, device) => total + of(device), 0);
  return {
    devices: able.length,
    all: view.servers.reduce((total, server) => total + server.devices.length, 0),
    leased: sum((device) => (100 - device.free_percent) / 100),
    load: able.length > 0 ? sum((device) => device.load_percent) / able.length : 0,
    memory: sum((device) => device.memory_bytes),
    free: sum((device) => device.free_bytes),
    waiting: view.queue.length,
    leases: view.leases.length,
    servers: view.servers.length,
    ready: view.servers.filter((server) => conditionOf(server) === 'ready').length,
  };
}

/** The servers in which the text occurs: in their names, labels, models, owners, or states. */
export function matching(all, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return all;
  const has = (words) => words.some((word) => String(word).toLowerCase().includes(wanted));
  return all.flatMap((server) => {
    const labels = Object.entries(server.labels).map(([key, value]) => `${key}=${value}`);
    if (has([server.name, server.state, ...labels])) return [server];
    const devices = server.devices.filter((device) => has(
      [device.model, device.uuid, stateOf(device)[0], ...device.holders.map((one) => one.owner)],
    ));
    return devices.length > 0 ? [{ ...server, devices }] : [];
  });
}

/** Whether somebody may end a lease. */
export function mayEnd(visitor, lease) {
  if (lease.over) return false;
  switch (visitor.role) {
    case 'admin': return true;
    case 'scheduler': return visitor.owner === lease.asked_by;
    case 'client': return visitor.owner === lease.owner;
    default: return false;
  }
}

/** How long until the broker is asked again, after an answer took so many ms. */
export function pause(took) {
  return Math.min(30_000, Math.max(2000, 10 * took));
}
