// Asks the broker.

/** Why there is no answer: `status` is 0 if the broker does not answer at all. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** How long an answer may take, in ms. */
const PATIENCE = 15_000;

/** Whoever gives a `signal` need not wait for the answer any more. */
export async function ask(path, token, { method = 'GET', signal = null } = {}) {
  const limits = [AbortSignal.timeout(PATIENCE), signal].filter(Boolean);
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: token ? { authorization: `Bearer ${token}` } : {},
      cache: 'no-store',
      redirect: 'error',
      signal: AbortSignal.any(limits),
    });
  } catch {
    throw new Refused(0, 'The broker does not answer; asking again.');
  }
  const said = await answer.json().catch(() => ({}));
  if (answer.ok) return said;
  throw new Refused(answer.status, said.error ?? `The broker says ${answer.status}.`);
}
