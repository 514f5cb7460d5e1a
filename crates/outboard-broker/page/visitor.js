// Who looks at the page: somebody with a token, with a certificate, or anybody.

import { ask } from './broker.js';

const KEY = 'outboard-token';

/** Storage may be forbidden: then the token is forgotten when the page is left. */
let inMemory = null;

export function token() {
  try {
    return sessionStorage.getItem(KEY) ?? inMemory;
  } catch {
    return inMemory;
  }
}

export function keepToken(text) {
  inMemory = text || null;
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    // It is in memory.
  }
}

/** What a token may consist of: anything else cannot be in a header. */
export function isToken(text) {
  return /^[\x21-\x7e]+$/.test(text);
}

/** Who the broker takes us for. Throws if it shows us nothing. */
export async function visitor(signal) {
  try {
    return await ask('/v1/me', token(), { signal });
  } catch (refused) {
    if (refused.status !== 401 || token()) throw refused;
    // A broker with an open view shows it to all.
    await ask('/v1/history?points=1', null, { signal });
    return { owner: null, group: null, role: null };
  }
}

export function describe(who) {
  if (!who.role) return 'Everybody sees this, without names.';
  return `You are ${who.owner}, ${who.role}.`;
}
