// How the pool was used.

import { area, ceiling, line, mean } from './chart.js';
import { attributes, element, say, svg } from './dom.js';
import { duration, number, percent } from './format.js';

const [WIDTH, HEIGHT] = [1000, 200];
const LEGEND = [
  ['leased', 'devices that leases have'],
  ['load', 'how busy devices are'],
  ['waiting', 'requests that wait'],
];

function legend() {
  const all = { viewBox: '0 0 30 10', class: 'chart', 'aria-hidden': 'true' };
  const sample = (kind) => svg('svg', all, svg('path', { class: kind, d: 'M0 5L30 5' }));
  const items = LEGEND.map(([kind, words]) =>
    element('li', {}, sample(kind), element('span', {}, words)));
  return element('ul', { class: 'legend', role: 'list' }, ...items);
}

function waiters(most) {
  if (most === 0) return 'no request waited';
  return most === 1 ? 'at most one request waited' : `at most ${most} requests waited`;
}

export function pastIn(parent) {
  const grid = [0.25, 0.5, 0.75].map((part) =>
    svg('line', { class: 'grid', x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }));
  const paths = LEGEND.map(([kind]) => svg('path', { class: kind, d: '' }));
  const chart = svg('svg', {
    class: 'chart', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
  }, ...grid, ...paths);
  const ends = element('p', { class: 'ends' }, element('span'), element('span'), element('span'));
  const said = element('p', { class: 'small quiet' });
  parent.replaceChildren(chart, ends, legend(), said);

  return (history) => {
    const of = (get) => history.points.map((point) => (point ? get(point) : null));
    const devices = Math.max(1, ...of((point) => point.devices));
    const longest = ceiling(Math.max(1, ...of((point) => point.waiting)));
    const leased = of((point) => point.leased);
    const load = of((point) => point.load_percent);
    const waiting = of((point) => point.waiting);
    attributes(paths[0], { d: area(leased, devices, WIDTH, HEIGHT) });
    attributes(paths[1], { d: line(load, 100, WIDTH, HEIGHT) });
    attributes(paths[2], { d: line(waiting, longest, WIDTH, HEIGHT) });
    const length = history.points.length * history.step_seconds;
    say(ends.children[0], `${duration(length)} ago`);
    say(ends.children[1], `top: ${number(devices)} devices, 100 % busy, ${longest} waiting`);
    say(ends.children[2], 'now');
    const means = [mean(leased), mean(load)];
    const words = means[0] === null ? 'Nothing is known of this time.'
      : `On average ${number(means[0])} of ${number(devices)} devices had leases and devices were `
        + `${percent(means[1])} busy; ${waiters(Math.max(...waiting))}.`;
    say(said, words);
    attributes(chart, { 'aria-label': words });
  };
}
