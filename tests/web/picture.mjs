// Takes the picture of the page for the documentation: of a pool that is in use for a while.

import { launch, open, enter } from './browser.mjs';
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
  await pool.run(of.ada, ['--gpus', '2', '--same-server']);
  await pause(45);
  const short = await pool.run(of.grace, ['--gpus', '3']);
  await pause(45);
  await short.end();
  await pause(30);
  await pool.run(of.grace, ['--gpus', '1', '--memory', '256M', '--share', '50']);
  await pool.run(of.alan, ['--gpus', '1', '--memory', '128M', '--share', '25']);
  await pool.run(of.alan, ['--gpus', '1']);
  await pool.run(of.grace, ['--gpus', '5', '--model', 'Outboard'], false);
  await pause(45);
  const options = { viewport: { width: 1180, height: 900 } };
  const { page } = await open(browser, pool, options);
  await enter(page, pool.token('admin', 'operator'));
  await page.getByLabel('of the last').selectOption('600');
  await page.getByRole('img', { name: /^On average/ }).waitFor();
  await pause(3);
  await page.evaluate(() => document.activeElement.blur());
  await page.screenshot({ path: file, fullPage: true });
} finally {
  await browser.close();
  await pool.end();
}
