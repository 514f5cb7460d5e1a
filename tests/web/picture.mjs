// Takes the picture of the page for the documentation: of a pool that is in use for a while.

import { writeFileSync } from 'node:fs';

import { enter, launch, open } from './browser.mjs';
import { Pool } from './pool.mjs';

const [, , file] = process.argv;
const pause = (seconds) => new Promise((wake) => setTimeout(wake, seconds * 1000));

const pool = await Pool.start();
const browser = await launch();
try {
  await pool.serve('gpu1', 4, ['rack=r7']);
  await pool.serve('gpu2', 3, ['rack=r8']);
  const of = Object.fromEntries(
    ['ada', 'grace', 'alan'].map((owner) => [owner, pool.token('client', owner)]),
  );
  await pause(25);
  const computes = 'echo ready; "$programs/steps" train 1000000 >&2';
  await pool.run(of.ada, ['--gpus', '2', '--same-server']);
  await pause(45);
  const short = await pool.run(of.grace, ['--gpus', '3']);
  await pause(45);
  await short.end();
  await pause(30);
  await pool.run(of.grace, ['--gpus', '1', '--memory', '256M', '--share', '50']);
  await pool.run(of.alan, ['--gpus', '1', '--memory', '128M', '--share', '25']);
  await pool.run(of.alan, ['--gpus', '1'], true, computes);
  await pool.run(of.grace, ['--gpus', '5', '--memory', '1G'], false);
  await pause(45);
  const options = { viewport: { width: 1080, height: 900 } };
  const { page } = await open(browser, pool, options);
  await enter(page, pool.token('admin', 'operator'));
  await page.getByLabel('of the last').selectOption('600');
  await page.getByRole('img', { name: /^On average/ }).waitFor();
  await pause(3);
  await page.evaluate(() => document.activeElement.blur());
  const size = await page.evaluate(() => document.documentElement.scrollHeight);
  const clip = { x: 0, y: 0, width: options.viewport.width, height: size, scale: 1 };
  const devtools = await page.context().newCDPSession(page);
  const { data } = await devtools.send('Page.captureScreenshot', {
    format: 'webp', quality: 80, captureBeyondViewport: true, clip,
  });
  writeFileSync(file, Buffer.from(data, 'base64'));
  if (process.env.OUTBOARD_PICTURE) {
    await page.screenshot({ path: process.env.OUTBOARD_PICTURE, fullPage: true });
  }
} finally {
  await browser.close();
  await pool.end();
}
