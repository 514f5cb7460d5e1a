// Brings the parts of the page together, and keeps them up to date.

import { ask } from './broker.js';
import { element, keep, say } from './dom.js';
import { bytes, number, percent } from './format.js';
import { leasesIn } from './leases.js';
import { showMap } from './map.js';
import { matching, names, pause, servers, totals } from './model.js';
import { pastIn } from './past.js';
import { queueIn } from './queue.js';
import { describe, isToken, keepToken, token, visitor } from './visitor.js';

const at = (id) => document.getElementById(id);

/** How often the past is asked for, in ms. */
const PAST_EACH = 10_000;
/** Somebody has shown nothing, and not everybody may look. */
const NOBODY = 'The broker shows its pool to those with a token.';
/** In how many pieces. */
const PIECES = 240;

const showQueue = queueIn(at('queue'));
const showLeases = leasesIn(at('leases'), askForEnd);
const showPast = pastIn(at('past'));

let who = null;
let view = null;
let pastAsked = 0;
let timer = null;
let asking = new AbortController();

function status(text, isWrong = false) {
  say(at('status'), text);
  at('status').classList.toggle('wrong', isWrong);
}

function showTotals() {
  const all = totals(view);
  const facts = [
    ['Devices taken', `${number(all.leased)} of ${all.devices}`],
    ['Busy', percent(all.load)],
    ['Memory free', bytes(all.free)],
    ['Waiting', String(all.waiting)],
    ['Servers ready', `${all.ready} of ${all.servers}`],
  ];
  if (who.role) facts.splice(4, 0, ['Leases', String(all.leases)]);
  const make = () => element('div', {}, element('dt'), element('dd'));
  keep(at('totals'), facts, ([name]) => name, make, (node, [name, value]) => {
    say(node.children[0], name);
    say(node.children[1], value);
  });
}

function show() {
  const now = Date.now();
  const text = at('filter').value;
  const none = view.servers.length === 0 ? 'The pool has no devices.' : `Nothing has “${text}”.`;
  showTotals();
  showMap(at('map'), matching(servers(view), text), none, now);
  showQueue(view.queue, now);
  showLeases(view.leases, names(view), who, now);
}

/** Nobody in particular looks: asks for a token. */
function enter(sentence) {
  who = null;
  say(at('visitor'), '');
  at('pool').hidden = true;
  at('leave').hidden = true;
  at('enter').hidden = false;
  status(sentence, Boolean(token()));
}

function welcome(someone) {
  who = someone;
  say(at('visitor'), describe(who));
  at('leave').hidden = !token();
  at('leases-section').hidden = !who.role;
}

/** All of the pool, page after page. */
async function whole(signal) {
  const pool = await ask('/v1/pool', token(), { signal });
  while (pool.next) {
    const page = await ask(`/v1/pool?after=${pool.next}`, token(), { signal });
    for (const list of ['servers', 'leases', 'queue', 'owners']) pool[list].push(...page[list]);
    pool.next = page.next;
  }
  return pool;
}

/** What is shown, as it is now; the past only now and then. */
async function look(signal) {
  const someone = who ?? await visitor(signal);
  const pool = await whole(signal);
  let past = null;
  if (Date.now() - pastAsked >= PAST_EACH) {
    const path = `/v1/history?seconds=${at('span').value}&points=${PIECES}`;
    past = await ask(path, token(), { signal });
  }
  return { someone, pool, past };
}

function take({ someone, pool, past }) {
  view = pool;
  at('enter').hidden = true;
  at('pool').hidden = false;
  if (who !== someone) welcome(someone);
  show();
  if (past) {
    showPast(past);
    pastAsked = Date.now();
  }
  status('Live.');
}

/**
 * Asks the broker, and again after a while: not while nobody sees the page. What was asked before
 * is not waited for: it may be for another token.
 */
async function live() {
  clearTimeout(timer);
  asking.abort();
  if (document.hidden) return;
  const mine = new AbortController();
  asking = mine;
  const began = performance.now();
  try {
    const seen = await look(mine.signal);
    if (mine.signal.aborted) return;
    take(seen);
  } catch (refused) {
    if (mine.signal.aborted) return;
    if (refused.status === 401 || refused.status === 403) {
      enter(token() ? refused.message : NOBODY);
      return;
    }
    status(refused.message, true);
  }
  timer = setTimeout(live, pause(performance.now() - began));
}

function again() {
  pastAsked = 0;
  live();
}

/** Asks whether a lease is to end, and has it end. */
function askForEnd(lease) {
  const dialog = at('ask');
  say(at('ask-head'), `End lease ${lease.number}?`);
  const users = lease.sessions === 1 ? '1 session uses' : `${lease.sessions} sessions use`;
  say(at('ask-text'), `It is ${lease.owner}’s, and ${users} it. `
    + 'Programs that use it fail at their next call.');
  at('ask-yes').onclick = async () => {
    dialog.close();
    try {
      await ask(`/v1/leases/${lease.number}`, token(), { method: 'DELETE' });
      live();
    } catch (refused) {
      status(refused.message, true);
    }
  };
  at('ask-no').onclick = () => dialog.close();
  dialog.showModal();
}

at('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = at('token').value.trim();
  at('token').value = '';
  if (!isToken(text)) {
    status('That is no token: it is one word of letters, digits and signs.', true);
    return;
  }
  keepToken(text);
  again();
});
at('leave').addEventListener('click', () => {
  keepToken(null);
  view = null;
  who = null;
  again();
});
at('filter').addEventListener('input', () => view && show());
at('span').addEventListener('change', again);
document.addEventListener('visibilitychange', live);
live();
