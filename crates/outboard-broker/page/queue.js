// Who waits, and for what.

import { say, table } from './dom.js';
import { ago, bytes } from './format.js';
import { partOf } from './model.js';

const HEADS = ['Place', 'Owner', 'Wants', 'Waits for', 'Because'];

export function queueIn(parent) {
  const show = table(parent, 'Requests that wait', HEADS, 'Nobody waits.');
  return (queue, now) => show(queue, (ticket) => `${ticket.ticket}/${ticket.place}`,
    ([place, owner, wants, since, because], ticket) => {
      const part = partOf(ticket);
      const devices = ticket.devices === 1 ? '1 device' : `${ticket.devices} devices`;
      const share = part === 100 ? 'whole' : `${part} %`;
      say(place, String(ticket.place));
      say(owner, ticket.owner);
      const memory = ticket.memory_bytes > 0 ? `, ${bytes(ticket.memory_bytes)}` : '';
      say(wants, `${devices}, ${share}${memory}`);
      say(since, ago(ticket.since, now));
      say(because, ticket.because || '–');
    });
}
