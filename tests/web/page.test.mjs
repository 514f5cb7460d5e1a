// The broker's page in a real browser, of a real broker with real servers and programs.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { barriers, enter, launch, open, overflow } from './browser.mjs';
import { device, Pool, until } from './pool.mjs';

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** Opens the page for what the test does, and has nothing complain. */
async function looking(pool, options, work) {
  const { context, page, complaints } = await open(browser, pool, options);
  try {
    await work(page);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

describe('a pool of two servers', () => {
  let pool;
  let [admin, ada, bob, viewer] = [];
  before(async () => {
    pool = await Pool.start();
    await pool.serve('gpu1', 3, ['rack=r7']);
    await pool.serve('gpu2', 2, ['rack=r8']);
    admin = pool.token('admin', 'root');
    ada = pool.token('client', 'ada');
    bob = pool.token('client', 'bob');
    viewer = pool.token('viewer', 'eve');
  });
  after(() => pool?.end());

  it('shows nothing without a token, and says what is wrong with one', async () => {
    await looking(pool, {}, async (page) => {
      await page.getByText('shows its pool to those with a token').waitFor();
      assert.equal(await page.locator('#pool').isVisible(), false);
      await page.getByLabel('Token for this broker').fill('two words');
      await page.keyboard.press('Enter');
      await page.getByText('That is no token').waitFor();
      await page.getByLabel('Token for this broker').fill('obt_wrong');
      await page.keyboard.press('Enter');
      await page.getByText('does not accept this token').waitFor();
      await enter(page, viewer);
      await page.getByText('You are eve, viewer.').waitFor();
      // It outlasts the page, and not the tab or the wish to forget it.
      await page.reload();
      await page.getByText('Live.').waitFor();
      await page.getByRole('button', { name: 'Forget the token' }).click();
      await page.getByText('shows its pool to those with a token').waitFor();
      assert.equal(await page.evaluate(() => sessionStorage.length), 0);
      assert.equal(await page.locator('#pool').isVisible(), false);
    });
  });

  it('shows each device of each server', async () => {
    await looking(pool, {}, async (page) => {
      await enter(page, viewer);
      const view = await pool.ask('GET', '/v1/pool', viewer);
      assert.equal(view.servers.length, 2);
      for (const server of view.servers) {
        const card = page.getByRole('article', { name: `server ${server.name}` });
        assert.equal(await card.getByRole('listitem').count(), server.devices.length);
        await card.getByText(`rack=${server.labels.rack}`).waitFor();
        await card.getByText(server.devices[0].model).first().waitFor();
      }
      await page.getByText('0 of 5', { exact: true }).waitFor();
      await page.getByLabel('Only with').fill('r8');
      assert.equal(await page.getByRole('article').count(), 1);
      await page.getByLabel('Only with').fill('nothing like this');
      await page.getByText('Nothing has “nothing like this”.').waitFor();
    });
  });

  it('shows leases and the queue as they come and go', async () => {
    await looking(pool, {}, async (page) => {
      await enter(page, ada);
      await page.getByText('Nobody has a lease.').waitFor();
      await page.getByText('Nobody waits.').waitFor();
      const began = Date.now();
      const first = await pool.run(ada, ['--gpus', '3', '--same-server']);
      const granted = Date.now();
      const card = page.getByRole('article', { name: 'server gpu1' });
      await card.getByText(/^ada \(lease \d+\)$/).first().waitFor();
      const took = Date.now() - granted;
      assert.ok(took < 5000, `it is seen after ${took} ms`);
      assert.equal(await card.getByText('taken', { exact: true }).count(), 3);
      await pool.run(bob, ['--gpus', '1', '--memory', '100M', '--share', '25']);
      await page.getByRole('article', { name: 'server gpu2' }).getByText('25 % taken').waitFor();
      const waits = await pool.run(ada, ['--gpus', '4'], false);
      const queue = page.getByRole('table', { name: 'Requests that wait' });
      const row = queue.getByRole('row').filter({ hasText: 'ada' });
      await row.filter({ hasText: '4 devices, whole' }).waitFor();
      assert.match(await row.innerText(), /device/);
      // A client ends what is its own: bob's has no button.
      const leases = page.getByRole('table', { name: 'Leases' });
      assert.equal(await leases.getByRole('row').filter({ hasText: 'bob' })
        .getByRole('button').count(), 0);
      await leases.getByRole('row').filter({ hasText: 'ada' }).getByRole('button').click();
      await page.getByRole('dialog').getByText('It is ada’s').waitFor();
      await page.getByRole('button', { name: 'End it' }).click();
      const isOver = async () => {
        const view = await pool.ask('GET', '/v1/pool', admin);
        return !view.leases.some((lease) => lease.devices.length === 3);
      };
      await until('the lease ends', isOver);
      // Its devices are those that the request in the queue has waited for.
      await waits.find(/ready/);
      await page.getByText('Nobody waits.').waitFor();
      assert.ok(Date.now() - began < 60_000);
      await first.end();
      await waits.end();
    });
    await looking(pool, {}, async (page) => {
      await enter(page, admin);
      await page.getByRole('row').filter({ hasText: 'bob' }).getByRole('button').click();
      await page.getByRole('button', { name: 'End it' }).click();
      await page.getByText('Nobody has a lease.').waitFor();
    });
  });

  it('shows how the pool was used', async () => {
    await looking(pool, {}, async (page) => {
      await enter(page, viewer);
      await page.getByLabel('of the last').selectOption('600');
      await page.getByRole('img', { name: /^On average [\d.]+ of 5 devices had leases/ }).waitFor();
      const drawn = await page.locator('#past path.leased').first().getAttribute('d');
      assert.match(drawn, /^M[\d.]+ [\d.]+(L[\d.]+ [\d.]+)+Z/);
    });
  });

  it('asks nothing while nobody sees it', async () => {
    await looking(pool, {}, async (page) => {
      await enter(page, viewer);
      let asked = 0;
      page.on('request', () => { asked += 1; });
      const show = (isHidden) => page.evaluate((value) => {
        Object.defineProperty(document, 'hidden', { get: () => value, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      }, isHidden);
      await show(true);
      await page.waitForTimeout(5000);
      assert.equal(asked, 0);
      await show(false);
      await until('it asks again', () => asked > 1);
    });
  });

  it('can be used with a keyboard, and keeps the focus while it changes', async () => {
    const program = await pool.run(ada, ['--gpus', '1']);
    await looking(pool, {}, async (page) => {
      await enter(page, ada);
      const button = page.getByRole('button', { name: /^End lease \d+$/ });
      await button.waitFor();
      for (let steps = 0; !await button.evaluate((node) => node === document.activeElement);) {
        await page.keyboard.press('Tab');
        steps += 1;
        assert.ok(steps < 20, 'the button is reached');
      }
      await page.waitForResponse(/\/v1\/pool/);
      await page.waitForTimeout(300);
      assert.ok(await button.evaluate((node) => node === document.activeElement));
      await page.keyboard.press('Enter');
      await page.getByRole('dialog', { name: /^End lease \d+\?$/ }).waitFor();
      // What does no harm comes first.
      const focused = await page.evaluate(() => document.activeElement.textContent);
      assert.equal(focused, 'Keep it');
      await page.keyboard.press('Escape');
      assert.equal(await page.getByRole('dialog').count(), 0);
      assert.ok(await button.evaluate((node) => node === document.activeElement));
    });
    await program.end();
  });

  it('says when the broker is away, and goes on when it is back', async () => {
    await looking(pool, {}, async (page) => {
      await enter(page, viewer);
      await pool.restartBroker(() => page.getByText('The broker does not answer').waitFor());
      await page.getByText('Live.').waitFor();
      await page.getByRole('article', { name: 'server gpu1' }).waitFor();
    });
  });

  it('has no barriers, in light and dark', async () => {
    const program = await pool.run(ada, ['--gpus', '1', '--memory', '100M', '--share', '50']);
    const waits = await pool.run(bob, ['--gpus', '5'], false);
    for (const colorScheme of ['light', 'dark']) {
      for (const width of [360, 1280]) {
        // Its rules run as a script that the page's policy would refuse.
        const options = { colorScheme, viewport: { width, height: 800 }, bypassCSP: true };
        const { context, page } = await open(browser, pool, options);
        assert.deepEqual(await barriers(page), [], 'before a token');
        await enter(page, ada);
        await page.getByRole('table', { name: 'Requests that wait' }).waitFor();
        await page.getByRole('img', { name: /^On average/ }).waitFor();
        assert.deepEqual(await barriers(page), [], `${colorScheme}, ${width}`);
        assert.ok(await overflow(page) <= 0, `${width} is wide enough`);
        await context.close();
      }
    }
    await waits.end();
    await program.end();
  });
});

describe('a pool with hostile members', () => {
  let pool;
  after(() => pool?.end());

  it('shows what they say of themselves as text', async () => {
    pool = await Pool.start();
    const words = [
      '<img src=x onerror=alert(1)>',
      '"><script>alert(2)</script>',
      '<svg/onload=alert(3)><style>*{display:none}</style>',
      "javascript:alert(4)//'${alert(5)}`",
      '</p></li><iframe srcdoc="<script>alert(6)</script>">',
    ];
    const devices = words.map((model, at) => device(`GPU-${at}`, model));
    const name = 'constructor/../__proto__@'.padEnd(253, 'x');
    const labels = { __proto__x: 'a', 'javascript:x': 'y'.repeat(253) };
    await pool.pretend({ name, driver: words[0], labels, devices });
    const owner = 'w'.repeat(64);
    const client = pool.token('client', owner);
    await pool.ask('POST', '/v1/requests', client, {
      request: {
        owner, group: 'everybody', devices: 1, memory_bytes: 1, usage: 'exclusive', model: null,
        capability: null, servers: 'any', near: null, may_share: 'nobody', priority: 0,
        wait_seconds: 0,
      },
      client_key: 'ab'.repeat(32),
    });
    await looking(pool, { viewport: { width: 360, height: 740 } }, async (page) => {
      await enter(page, pool.token('admin', 'root'));
      for (const word of words) await page.getByText(word).first().waitFor();
      await page.getByText(`driver ${words[0]}`).waitFor();
      await page.getByText(owner).first().waitFor();
      assert.equal(await page.locator('main img, main iframe, main script, main style').count(), 0);
      assert.ok(await overflow(page) <= 0, 'long words are broken');
      await page.waitForTimeout(2500);
    });
  });
});

describe('a pool for everybody', () => {
  let pool;
  after(() => pool?.end());

  it('shows devices and names nobody', async () => {
    pool = await Pool.start(['--open-view']);
    await pool.serve('gpu1', 2);
    const ada = pool.token('client', 'ada-lovelace');
    await pool.run(ada, ['--gpus', '1']);
    await looking(pool, {}, async (page) => {
      await page.getByText('Everybody sees this, without names.').waitFor();
      await page.getByText('1 of 2', { exact: true }).waitFor();
      assert.equal(await page.getByRole('heading', { name: 'Leases' }).count(), 0);
      assert.ok(!(await page.content()).includes('lovelace'));
    });
  });
});

describe('a pool that knows certificates', () => {
  let pool;
  after(() => pool?.end());

  it('knows who has one', async () => {
    pool = await Pool.start();
    const file = (name) => join(pool.folder, name);
    const openssl = (...args) => execFileSync('openssl', args, { stdio: 'pipe' });
    const key = (name) => ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
      '-keyout', file(`${name}.key`)];
    writeFileSync(file('use'), 'extendedKeyUsage = clientAuth\n');
    openssl('req', '-x509', ...key('ca'), '-out', file('ca.crt'), '-days', '2', '-subj', '/CN=ca');
    openssl('req', ...key('eve'), '-out', file('eve.csr'), '-subj', '/OU=viewer/CN=eve');
    openssl('x509', '-req', '-in', file('eve.csr'), '-CA', file('ca.crt'), '-CAkey', file('ca.key'),
      '-CAcreateserial', '-out', file('eve.crt'), '-days', '1', '-extfile', file('use'));
    pool.flags = ['--client-ca', file('ca.crt')];
    await pool.restartBroker(async () => {});
    const clientCertificates = [
      { origin: pool.url, certPath: file('eve.crt'), keyPath: file('eve.key') },
    ];
    await looking(pool, { clientCertificates }, async (page) => {
      await page.getByText('You are eve, viewer.').waitFor();
      await page.getByText('The pool has no devices.').waitFor();
    });
  });
});
