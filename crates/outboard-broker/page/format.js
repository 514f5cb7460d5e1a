// Numbers and times as people read them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || count >= 100 ? 0 : 1;
  return `${count.toFixed(digits).replace(/\.0$/, '')} ${UNITS[unit]}`;
}

/** A number with at most one digit behind the point. */
export function number(count) {
  return (Math.round(count * 10) / 10).toString();
}

export function percent(part) {
  return `${Math.round(part)} %`;
}

/** A length of time by its two largest units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [
    [Math.floor(whole / 86400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0 s';
  return parts.slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}

/** How long before `now` (in ms) a time as text was. */
export function ago(text, now) {
  return duration((now - Date.parse(text)) / 1000);
}
