// Lines through numbers, as paths of SVG. No element: what is tested without a browser.

/** Runs of numbers without a gap: `[[index, value], …]` for each. */
export function runs(values) {
  const found = [];
  let run = null;
  values.forEach((value, index) => {
    if (value === null || value === undefined || !Number.isFinite(value)) {
      run = null;
      return;
    }
    if (!run) {
      run = [];
      found.push(run);
    }
    run.push([index, value]);
  });
  return found;
}

const round = (value) => Math.round(value * 100) / 100;

/** Points of a run in a box of that width and height; a number is drawn over its whole piece. */
function points(run, count, most, width, height) {
  const x = (index) => round((index / count) * width);
  const y = (value) => round(height - (Math.min(Math.max(value, 0), most) / most) * height);
  return run.flatMap(([index, value]) => [[x(index), y(value)], [x(index + 1), y(value)]]);
}

const path = (all) => all.map(([x, y], at) => `${at === 0 ? 'M' : 'L'}${x} ${y}`).join('');

/** The path of a line; a gap is a gap. */
export function line(values, most, width, height) {
  return runs(values)
    .map((run) => path(points(run, values.length, most, width, height)))
    .join('');
}

/** The path of the area below the line. */
export function area(values, most, width, height) {
  return runs(values).map((run) => {
    const upper = points(run, values.length, most, width, height);
    const [first, last] = [upper[0][0], upper[upper.length - 1][0]];
    return `${path([...upper, [last, height], [first, height]])}Z`;
  }).join('');
}

/** A round number that is at least as large: 1, 2 or 5 times a power of ten. */
export function ceiling(value) {
  if (!(value > 1)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((times) => times * power).find((round) => round >= value);
}

/** The mean of what is known, or nothing. */
export function mean(values) {
  const known = values.filter((value) => Number.isFinite(value));
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
