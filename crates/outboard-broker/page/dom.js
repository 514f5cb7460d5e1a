// Elements are made and kept up to date here. All text becomes text, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function attributes(node, all) {
  for (const [name, value] of Object.entries(all)) {
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

export function element(tag, all = {}, ...children) {
  const node = document.createElement(tag);
  attributes(node, all);
  node.append(...children);
  return node;
}

export function svg(tag, all = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  attributes(node, all);
  node.append(...children);
  return node;
}

export { attributes };

/** Sets a text, unless it is there already: screen readers would read it again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Has `parent` show the items in order. A node stays with its item's key, so that the focus stays
 * where it is; `make()` makes one, `show(node, item)` brings it up to date.
 */
export function keep(parent, items, key, make, show) {
  const there = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = there.get(name);
    if (node) there.delete(name);
    else {
      node = make();
      node.dataset.key = name;
    }
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
    show(node, item);
  }
  for (const node of there.values()) node.remove();
}

/** A table of rows under heads; says `none` instead if there are no rows. */
export function table(parent, caption, heads, none) {
  const body = element('tbody', { role: 'rowgroup' });
  const head = element('tr', { role: 'row' },
    ...heads.map((text) => element('th', { scope: 'col', role: 'columnheader' }, text)));
  // Narrow screens show rows as blocks, which would be no table any more to a screen reader.
  const whole = element('table', { role: 'table', 'aria-label': caption },
    element('thead', { role: 'rowgroup' }, head), body);
  const nothing = element('p', { class: 'quiet' }, none);
  parent.replaceChildren(whole, nothing);
  const make = () => element('tr', { role: 'row' },
    ...heads.map((text) => element('td', { role: 'cell', 'data-head': text }, element('span'))));
  return (rows, key, show) => {
    whole.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
    keep(body, rows, key, make, (node, row) => {
      show([...node.children].map((cell) => cell.firstElementChild), row);
    });
  };
}
