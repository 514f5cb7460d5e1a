// Who has what, and the end of it.

import { element, say, table } from './dom.js';
import { ago, bytes, duration } from './format.js';
import { mayEnd, partOf } from './model.js';

const HEADS = ['Lease', 'Owner', 'Devices', 'For', 'Sessions', 'Memory in use', 'Ends', 'End it'];

/** Whose it is, and what for. */
function holder(lease) {
  return `${lease.owner} (${lease.group})${lease.purpose ? `: ${lease.purpose}` : ''}`;
}

function devicesOf(lease, name) {
  const one = (granted) => {
    const part = partOf(granted);
    return `${name(granted)}${part < 100 ? ` (${part} %)` : ''}`;
  };
  return lease.devices.map(one).join(', ');
}

function endOf(lease, now) {
  if (lease.over) return `over: ${lease.over}`;
  const left = duration((Date.parse(lease.expires) - now) / 1000);
  return `in ${left}, unless it is renewed`;
}

/** `end(lease)` is called when somebody wants a lease to end. */
export function leasesIn(parent, end) {
  const show = table(parent, 'Leases', HEADS, 'Nobody has a lease.');
  return (leases, name, visitor, now) => show(leases, (lease) => lease.number,
    ([number, owner, devices, since, sessions, used, ends, choice], lease) => {
      say(number, String(lease.number));
      say(owner, holder(lease));
      say(devices, devicesOf(lease, name));
      say(since, ago(lease.since, now));
      say(sessions, String(lease.sessions));
      say(used, bytes(lease.used_bytes));
      say(ends, endOf(lease, now));
      const button = choice.firstElementChild;
      if (!mayEnd(visitor, lease)) {
        if (button) button.remove();
      } else if (!button) {
        const words = `End lease ${lease.number}`;
        const made = element('button', { type: 'button', class: 'danger' }, words);
        made.addEventListener('click', () => end(lease));
        choice.append(made);
      }
    });
}
