// A browser that looks at the broker's page, and what it complains of.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** `cargo xtask web` says where the browser is and where its libraries are. */
export function launch() {
  const libraries = process.env.OUTBOARD_BROWSER_LIBRARIES;
  return chromium.launch({
    executablePath: process.env.OUTBOARD_BROWSER,
    // The sandbox needs rights that the user of tests may lack; it sees pages of our own only.
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
    env: { ...process.env, ...(libraries ? { LD_LIBRARY_PATH: libraries } : {}) },
  });
}

/** A tab at the broker's page; `complaints` are what its console, its policy and errors say. */
export async function open(browser, pool, options = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => {
    // A refusal is no failure of the page: it is said in words.
    const isRefusal = /the server responded with a status of 4\d\d/.test(message.text());
    const isAway = /net::ERR_CONNECTION/.test(message.text());
    if (['error', 'warning'].includes(message.type()) && !isRefusal && !isAway) {
      complaints.push(message.text());
    }
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${pool.url}/`)) complaints.push(`asks ${request.url()}`);
  });
  // Also what is only reported, and before the page's own scripts run.
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  await page.goto(`${pool.url}/`);
  return { context, page, complaints };
}

/** Shows the page who looks. */
export async function enter(page, token) {
  await page.getByLabel('Token for this broker').fill(token);
  await page.getByRole('button', { name: 'Show the pool' }).click();
  await page.getByText('Live.').waitFor();
}

/** What is wrong for those who cannot see or use a mouse, by the rules of WCAG 2.2. */
export async function barriers(page) {
  // Not as a script of the page, which its policy would refuse.
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  return found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0].html}`);
}

/** By how many pixels the page is wider than the window. */
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}
