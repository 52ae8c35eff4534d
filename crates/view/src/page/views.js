// The views: curves, comparison of runs, system, ranks, distributions, texts, logs. Others are in media.js.

import { state, shownRuns, shownTrials, loadScalars, loadRanks, loadSome, load, loadLog } from './data.js';
import { images, sounds, prCurves, checkpoints, models } from './media.js';
import { markdown } from './text.js';
import { grouped, groupNames } from './group.js';
import { Chart, h, s, short, count, bytes, duration, showTooltip, hideTooltip } from './chart.js';

/** What the user can set; a part of it is in the address. `smoothAll`: the user has chosen the smoothing. */
export const defaults = Object.freeze({ tab: 'curves', x: 'step', smoothing: 0.6, smoothAll: false, logY: false, logX: false, outliers: true, tags: '', group: '', metric: '', by: 'last', run: '', file: '', lines: '' });
export const settings = { ...defaults };

const isSystem = (tag) => tag.startsWith('system/') || tag.startsWith('throughput/');
/** Shows elements; those that are there already stay, with the place the user has scrolled to. */
function place(view, ...elements) {
  const list = elements.filter(Boolean);
  if (list.length !== view.children.length || list.some((element, i) => element !== view.children[i])) view.replaceChildren(...list);
}

const note = (...text) => h('p', { class: 'note' }, ...text);

/** How values of a name are written. */
export function formatOf(tag) {
  if (/bytes$|memory$/.test(tag)) return bytes;
  if (/percent$/.test(tag)) return (v) => `${short(v)} %`;
  if (/watts?$/.test(tag)) return (v) => `${short(v)} W`;
  if (/celsius$/.test(tag)) return (v) => `${short(v)} °C`;
  if (/mhz$/.test(tag)) return (v) => `${short(v)} MHz`;
  return short;
}

export function matcher(text) {
  try { const regex = new RegExp(text, 'i'); return (t) => regex.test(t); } catch { return (t) => t.includes(text); }
}

/** Steps as epochs: whole ones where an epoch began, parts of it by steps between. */
function epochs(run) {
  const curve = run.series.get('epoch');
  if (!curve || !curve.steps.length) return null;
  const starts = [];
  for (let i = 0; i < curve.steps.length; i++) {
    const last = starts[starts.length - 1];
    if (!last || curve.values[i] > last[1]) starts.push([i ? curve.steps[i - 1] : 0, curve.values[i], curve.steps[i]]);
  }
  return (step) => {
    let i = starts.length - 1;
    while (i > 0 && starts[i][0] >= step) i--;
    const [from, epoch] = starts[i];
    const length = i + 1 < starts.length ? starts[i + 1][0] - from : i > 0 ? from - starts[i - 1][0] : curve.steps[curve.steps.length - 1] - from;
    return epoch + (length > 0 ? Math.min(1, (step - from) / length) : 0);
  };
}

function xOf(run, curve) {
  if (settings.x === 'time') {
    const start = run.first_time || 0;
    return curve.times.map((t) => t - start);
  }
  if (settings.x === 'epoch') {
    const epoch = epochs(run);
    return curve.steps.map((step) => (epoch ? epoch(step) : NaN));
  }
  return curve.steps;
}

const groupOf = (tag) => (pins.has(tag) ? PINNED : tag.includes('/') ? tag.slice(0, tag.indexOf('/')) : '');

/** Charts that stay at the top, in this browser. */
const PINNED = '★ pinned';
const pins = new Set();
try { JSON.parse(localStorage.getItem('rushlight-pins') || '[]').forEach((tag) => pins.add(tag)); } catch { /* without storage, or with another page's */ }
/** Set by the page: draws anew. */
export const redraw = { now: () => {} };

function pin(tag) {
  if (!pins.delete(tag)) pins.add(tag);
  try { localStorage.setItem('rushlight-pins', JSON.stringify([...pins])); } catch { /* until the page is closed */ }
  redraw.now();
}

/** Charts in groups by the first part of their names; kept from one drawing to the next. */
class Board {
  constructor() { this.charts = new Map(); this.groups = new Map(); this.element = h('div'); this.closed = new Set(); }

  /** `items`: Map of name to {lines, options}. */
  update(items, common) {
    const names = new Map();
    for (const tag of items.keys()) {
      const group = groupOf(tag);
      if (!names.has(group)) names.set(group, []);
      names.get(group).push(tag);
    }
    for (const [group, { details }] of this.groups) if (!names.has(group)) { details.remove(); this.groups.delete(group); }
    for (const tag of [...this.charts.keys()]) if (!items.has(tag)) { this.charts.get(tag).element.remove(); this.charts.delete(tag); }
    const order = [...names.keys()].sort((a, b) => (b === PINNED) - (a === PINNED) || a.localeCompare(b));
    order.forEach((group, index) => {
      if (!this.groups.has(group)) {
        const grid = h('div', { class: 'charts' });
        const size = h('span', { class: 'dim' });
        const details = h('details', { class: 'group', open: true }, h('summary', {}, group || 'metrics', ' ', size), grid);
        this.groups.set(group, { details, grid, size });
      }
      const { details, grid, size } = this.groups.get(group);
      size.textContent = `(${names.get(group).length})`;
      if (this.element.children[index] !== details) this.element.insertBefore(details, this.element.children[index] || null);
      names.get(group).sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).forEach((tag, i) => {
        if (!this.charts.has(tag)) this.charts.set(tag, new Chart(tag));
        const chart = this.charts.get(tag);
        if (grid.children[i] !== chart.element) grid.insertBefore(chart.element, grid.children[i] || null);
        const { lines, options } = items.get(tag);
        chart.set(lines, { ...common, ...options, pinned: pins.has(tag), onPin: pin });
      });
    });
  }
}

const boards = {};
const board = (name) => boards[name] || (boards[name] = new Board());

const axes = () => ({ smoothing: settings.smoothing, smoothAll: settings.smoothAll, logX: settings.logX, logY: settings.logY, outliers: settings.outliers, xKind: settings.x });

async function curves(view) {
  const runs = shownRuns();
  const more = await loadSome(runs, [loadScalars]);
  const match = matcher(settings.tags);
  const items = new Map();
  for (const run of runs) {
    for (const [tag, curve] of run.series) {
      if (tag === 'epoch' || isSystem(tag) || !match(tag) || !curve.values.length) continue;
      if (!items.has(tag)) items.set(tag, { lines: [], options: { format: formatOf(tag) } });
      items.get(tag).lines.push({ run, name: run.name, color: run.color, x: xOf(run, curve), y: curve.values });
    }
  }
  if (groupNames(runs).includes(settings.group)) for (const item of items.values()) item.lines = grouped(item.lines, settings.group);
  const missing = settings.x === 'epoch' && runs.every((run) => !run.series.has('epoch'));
  board('curves').update(items, axes());
  if (items.size) place(view, missing && note('No run says which epoch its steps belong to.'), board('curves').element);
  else view.replaceChildren(empty('curves'));
  return more;
}

async function system(view) {
  const runs = shownRuns();
  const more = await loadSome(runs, [loadScalars, loadRanks]);
  const match = matcher(settings.tags);
  const items = new Map();
  const add = (tag, line) => {
    if (!match(tag)) return;
    if (!items.has(tag)) items.set(tag, { lines: [], options: { format: formatOf(tag), fromZero: true } });
    items.get(tag).lines.push(line);
  };
  for (const run of runs) {
    for (const [tag, curve] of run.series) if (isSystem(tag)) add(tag, { name: run.name, color: run.color, x: xOf(run, curve), y: curve.values });
    // Of several ranks the first: the others are in their own view.
    const first = [...run.ranks.keys()].sort((a, b) => a - b)[0];
    for (const [tag, curve] of run.ranks.get(first) || []) {
      add(tag, { name: run.ranks.size > 1 ? `${run.name} (rank ${first})` : run.name, color: run.color, x: xOf(run, curve), y: curve.values });
    }
  }
  board('system').update(items, axes());
  place(view, items.size ? board('system').element : empty('system'));
  return more;
}

/** The run of views that show one: the chosen one, else the first of those that have most to show. */
export function chosen(has, size = () => 0) {
  const runs = shownRuns().filter(has);
  return runs.find((run) => run.name === settings.run) || runs.sort((a, b) => size(b) - size(a))[0];
}

const hue = (i, n) => `hsl(${Math.round((i / Math.max(1, n)) * 300)} 62% 52%)`;

async function ranks(view) {
  const run = chosen((r) => r.rankList.length, (r) => r.rankList.length);
  if (!run) { view.replaceChildren(empty('ranks')); return; }
  await loadRanks(run);
  const all = [...run.ranks.keys()].sort((a, b) => a - b);
  const tags = [...new Set(all.flatMap((rank) => [...run.ranks.get(rank).keys()]))].sort();
  const last = (rank, tag) => { const c = run.ranks.get(rank).get(tag); return c && c.values.length ? c.values[c.values.length - 1] : NaN; };
  const head = h('tr', {}, h('th', {}, 'rank'), tags.map((tag) => h('th', { title: tag }, tag.replace(/^system\//, ''))));
  // A rank is odd where it is far from the others: five times their usual distance from the median.
  const limits = new Map(tags.map((tag) => {
    const values = all.map((rank) => last(rank, tag)).filter(Number.isFinite).sort((a, b) => a - b);
    const median = values[values.length >> 1];
    const spread = values.map((v) => Math.abs(v - median)).sort((a, b) => a - b)[values.length >> 1];
    return [tag, [median, Math.max(spread * 5, Math.abs(median) * 0.1)]];
  }));
  const odd = (rank, tag) => { const [median, far] = limits.get(tag); return all.length > 3 && Math.abs(last(rank, tag) - median) > far; };
  const rows = all.map((rank) => h('tr', { 'data-rank': rank }, h('td', {}, h('span', { class: 'swatch', style: { background: hue(all.indexOf(rank), all.length) } }), `rank ${rank}`),
    tags.map((tag) => h('td', { class: odd(rank, tag) ? 'odd' : null, title: odd(rank, tag) ? 'far from the other ranks' : null }, formatOf(tag)(last(rank, tag))))));
  const items = new Map();
  const match = matcher(settings.tags);
  for (const tag of tags.filter(match)) {
    const lines = all.filter((rank) => run.ranks.get(rank).has(tag)).map((rank) => {
      const curve = run.ranks.get(rank).get(tag);
      return { name: `rank ${rank}`, color: hue(all.indexOf(rank), all.length), x: xOf(run, curve), y: curve.values };
    });
    items.set(tag, { lines, options: { format: formatOf(tag) } });
  }
  board('ranks').update(items, axes());
  view.replaceChildren(h('h2', {}, `Newest figures of ${all.length} ${all.length > 1 ? 'ranks' : 'rank'}: `, run.name),
    h('div', { class: 'scroll' }, h('table', { class: 'data' }, h('thead', {}, head), h('tbody', {}, rows))), h('h2', {}, 'Over time'), board('ranks').element);
}

export const tagsOf = (run) => (run.notes && Array.isArray(run.notes.tags) ? run.notes.tags : []);

/** A run's value of the chosen metric: newest, least or greatest. */
const metricOf = (run, tag, by) => { const m = run.metrics.get(tag); return m ? m[by] : undefined; };

export function metricTags() {
  const tags = new Map();
  for (const run of state.runs.values()) for (const tag of run.metrics.keys()) if (tag !== 'epoch' && !isSystem(tag)) tags.set(tag, (tags.get(tag) || 0) + 1);
  return [...tags.keys()].sort((a, b) => (tags.get(b) - tags.get(a)) || a.localeCompare(b));
}

/** The metric to compare by: a validation loss if there is one. */
export function defaultMetric() {
  const tags = metricTags();
  return tags.find((t) => /val.*loss|loss.*val/i.test(t)) || tags.find((t) => /val|test/i.test(t)) || tags.find((t) => /loss/i.test(t)) || tags[0] || '';
}

export const shown = (v) => (v === undefined || v === null ? '' : typeof v === 'object' ? JSON.stringify(v) : typeof v === 'number' ? short(v) : String(v));
let sort = { key: 'metric', down: false };

async function compare(view) {
  const runs = [...shownRuns(), ...shownTrials()];
  const metric = settings.metric || defaultMetric(), by = settings.by;
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.hparams)))].sort();
  const differs = (name) => new Set(runs.map((run) => JSON.stringify(run.hparams[name]))).size > 1;
  const varied = names.filter(differs), same = names.filter((name) => !differs(name));
  if (!runs.length) { view.replaceChildren(empty('runs')); return; }
  const columns = [
    { key: 'run', title: 'run', value: (r) => r.name, cell: (r) => [h('span', { class: 'swatch', style: { background: r.color } }), r.name] },
    { key: 'metric', title: metric || 'metric', value: (r) => metricOf(r, metric, by), cell: (r) => shown(metricOf(r, metric, by)) },
    ...(varied.length ? varied : same).map((name) => ({ key: `h:${name}`, title: name, value: (r) => r.hparams[name], cell: (r) => shown(r.hparams[name]) })),
    { key: 'tags', title: 'tags', value: (r) => (tagsOf(r).length ? tagsOf(r).join(', ') : undefined), cell: (r) => tagsOf(r).map((tag) => h('span', { class: 'tag' }, tag)) },
    { key: 'state', title: 'state', value: (r) => r.state || undefined, cell: (r) => r.state },
    { key: 'step', title: 'steps', value: (r) => Math.max(0, ...[...r.metrics.values()].map((m) => m.step)), cell: (r) => count(Math.max(0, ...[...r.metrics.values()].map((m) => m.step))) },
    { key: 'time', title: 'time', value: (r) => r.last_time - r.first_time, cell: (r) => (r.first_time ? duration(r.last_time - r.first_time) : '') },
    { key: 'device', title: 'device', value: (r) => r.environment?.device, cell: (r) => shown(r.environment?.device) },
    { key: 'ranks', title: 'ranks', value: (r) => r.environment?.world_size, cell: (r) => shown(r.environment?.world_size) },
    { key: 'parameters', title: 'parameters', value: (r) => r.model?.parameters, cell: (r) => (r.model?.parameters ? count(r.model.parameters) : '') },
  ].filter((column) => ['run', 'metric', 'step', 'time'].includes(column.key) || runs.some((r) => column.value(r) !== undefined && column.value(r) !== null));
  const column = columns.find((c) => c.key === sort.key) || columns[1];
  const order = (a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    const none = (v) => v === undefined || v === null || Number.isNaN(v);
    if (none(x) || none(y)) return none(x) - none(y);
    const c = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
    return sort.down ? -c : c;
  };
  const sortBy = (key) => { sort = { key, down: sort.key === key && !sort.down }; compare(view); };
  const table = h('table', { class: 'data', id: 'compare' },
    h('thead', {}, h('tr', {}, columns.map((c) => h('th', {
      'aria-sort': c === column ? (sort.down ? 'descending' : 'ascending') : null, tabindex: 0, title: `sort by ${c.title}`,
      onclick: () => sortBy(c.key),
      onkeydown: (e) => { if (e.key === 'Enter') sortBy(c.key); },
    }, c.title, c === column ? (sort.down ? ' ↓' : ' ↑') : '')))),
    h('tbody', {}, [...runs].sort(order).map((run) => h('tr', {}, columns.map((c) => h('td', {}, c.cell(run)))))));
  const parts = [h('div', { class: 'scroll' }, table)];
  if (same.length && varied.length) parts.push(h('p', { class: 'dim' }, `The same in all runs: ${same.map((name) => `${name} = ${shown(runs[0].hparams[name])}`).join(', ')}`));
  const measured = runs.filter((run) => Number.isFinite(metricOf(run, metric, by)));
  // What some runs only lack cannot be compared.
  const compared = varied.filter((name) => new Set(measured.map((run) => run.hparams[name]).filter((v) => v !== undefined && v !== null).map(shown)).size > 1);
  if (compared.length && measured.length > 1) {
    parts.push(h('h2', {}, `All parameters and ${metric}`), h('div', { class: 'card scroll' }, parallel(measured, compared, metric, by)));
    parts.push(h('h2', {}, `Effect of each parameter on ${metric}`), h('div', { class: 'effects' }, compared.slice(0, 24).map((name) => scatter(measured, name, metric, by))));
  } else if (!names.length) parts.push(note('No hyperparameters were logged: Trainer::hparams, or SummaryWriter.add_hparams, does.'));
  view.replaceChildren(...parts);
}

/** Positions of values on an axis: numbers by size (or logarithm, where they span decades), others one by one. */
function scale(given) {
  const values = given.filter((v) => v !== undefined && v !== null);
  const numbers = values.every((v) => typeof v === 'number' && Number.isFinite(v));
  if (!numbers) {
    const kinds = [...new Set(values.map(shown))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    return { at: (v) => (kinds.length > 1 ? kinds.indexOf(shown(v)) / (kinds.length - 1) : 0.5), marks: kinds.slice(0, 12).map((k) => [kinds.length > 1 ? kinds.indexOf(k) / (kinds.length - 1) : 0.5, k]) };
  }
  const low = Math.min(...values), high = Math.max(...values), log = low > 0 && high / low >= 30;
  const f = log ? Math.log10 : (v) => v;
  const at = (v) => (high > low ? (f(v) - f(low)) / (f(high) - f(low)) : 0.5);
  // A round number near the middle.
  const middle = Number((log ? 10 ** ((f(low) + f(high)) / 2) : (low + high) / 2).toPrecision(2));
  return { at, log, marks: high > low ? [[0, short(low)], [at(middle), short(middle)], [1, short(high)]] : [[0.5, short(low)]] };
}

/** From blue (least) to amber (greatest), for runs too many to be told apart by their own colours. */
const tint = (share) => `hsl(${Math.round(215 - 180 * share)} 75% 52%)`;

function parallel(runs, names, metric, by) {
  const list = [...names.slice(0, 12), null];
  const width = Math.max(130 + 92 * (list.length - 1), Math.min(1400, document.getElementById('view').clientWidth - 26)), height = 260, top = 26, bottom = 14;
  const value = (run, name) => (name === null ? metricOf(run, metric, by) : run.hparams[name]);
  const scales = list.map((name) => scale(runs.map((run) => value(run, name))));
  const X = (i) => 60 + (i / (list.length - 1)) * (width - 130);
  const Y = (v) => height - bottom - v * (height - top - bottom);
  const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': 'parallel coordinates', id: 'parallel' });
  svg.style.minWidth = `${width}px`;
  const final = scales[scales.length - 1];
  for (const run of runs) {
    // A run without the parameter passes the axis by.
    const points = list.flatMap((name, i) => (value(run, name) === undefined || value(run, name) === null ? [] : [[X(i), Y(scales[i].at(value(run, name)))]]));
    const d = points.map(([x, y], i) => (i ? `C${(points[i - 1][0] + x) / 2} ${points[i - 1][1]} ${(points[i - 1][0] + x) / 2} ${y} ${x} ${y}` : `M${x} ${y}`)).join('');
    const line = s('path', { d, class: 'curve', stroke: runs.length > 8 ? tint(final.at(metricOf(run, metric, by))) : run.color, opacity: 0.85 });
    line.addEventListener('pointerenter', (e) => { line.setAttribute('stroke-width', 3.5); showTooltip(e.clientX, e.clientY, describe(run, names, metric, by)); });
    line.addEventListener('pointerleave', () => { line.removeAttribute('stroke-width'); hideTooltip(); });
    svg.append(line);
  }
  list.forEach((name, i) => {
    svg.append(s('line', { class: 'axis', x1: X(i), x2: X(i), y1: top, y2: height - bottom }));
    const title = name === null ? metric : name;
    svg.append(s('text', { x: X(i), y: 13, 'text-anchor': 'middle', 'font-weight': 600 }, title.length > 18 ? `${title.slice(0, 17)}…` : title));
    for (const [at, text] of scales[i].marks) svg.append(s('text', { class: 'label', x: X(i) + 6, y: Y(at) + 4 }, text.length > 12 ? `${text.slice(0, 11)}…` : text));
  });
  return svg;
}

function describe(run, names, metric, by) {
  const row = (k, v) => h('tr', {}, h('td', { class: 'dim' }, k), h('td', {}, shown(v)));
  return h('table', {}, h('tr', {}, h('td', { colspan: 2 }, run.name)), row(metric, metricOf(run, metric, by)), names.slice(0, 14).map((name) => row(name, run.hparams[name])));
}

/** Spearman's rank correlation. */
function correlation(xs, ys) {
  const ranksOf = (values) => {
    const order = values.map((v, i) => [v, i]).sort((a, b) => a[0] - b[0]), found = [];
    for (let i = 0; i < order.length;) {
      let j = i;
      while (j < order.length && order[j][0] === order[i][0]) j++;
      for (let k = i; k < j; k++) found[order[k][1]] = (i + j - 1) / 2;
      i = j;
    }
    return found;
  };
  const a = ranksOf(xs), b = ranksOf(ys), mean = (xs.length - 1) / 2;
  let ab = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; i++) { ab += (a[i] - mean) * (b[i] - mean); aa += (a[i] - mean) ** 2; bb += (b[i] - mean) ** 2; }
  return aa && bb ? ab / Math.sqrt(aa * bb) : NaN;
}

function scatter(all, name, metric, by) {
  const runs = all.filter((run) => run.hparams[name] !== undefined && run.hparams[name] !== null);
  const xs = runs.map((run) => run.hparams[name]), ys = runs.map((run) => metricOf(run, metric, by));
  const sx = scale(xs), sy = scale(ys);
  const width = 260, height = 150, left = 46, bottom = 22, top = 8, right = 14;
  const X = (v) => left + 8 + v * (width - left - right - 16), Y = (v) => height - bottom - 6 - v * (height - top - bottom - 12);
  const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${metric} by ${name}` });
  svg.append(s('line', { class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), s('line', { class: 'axis', x1: left, x2: left, y1: top, y2: height - bottom }));
  for (const [at, text] of sx.marks.slice(0, 4)) svg.append(s('text', { x: X(at), y: height - 6, 'text-anchor': 'middle' }, text.length > 10 ? `${text.slice(0, 9)}…` : text));
  for (const [at, text] of sy.marks) svg.append(s('text', { x: left - 5, y: Y(at) + 4, 'text-anchor': 'end' }, text));
  runs.forEach((run, i) => {
    const dot = s('circle', { cx: X(sx.at(xs[i])), cy: Y(sy.at(ys[i])), r: 5, fill: run.color, opacity: 0.85 });
    dot.addEventListener('pointerenter', (e) => showTooltip(e.clientX, e.clientY, describe(run, [name], metric, by)));
    dot.addEventListener('pointerleave', hideTooltip);
    svg.append(dot);
  });
  const numeric = xs.every((v) => typeof v === 'number');
  const r = numeric && runs.length > 2 ? correlation(xs, ys) : NaN;
  return h('div', { class: 'card' }, h('h3', {}, h('span', {}, name), Number.isFinite(r) ? h('span', { class: 'dim', title: 'Spearman’s rank correlation with the metric' }, `ρ ${r.toFixed(2)}`) : ''), svg);
}

async function distributions(view) {
  const runs = shownRuns().filter((run) => run.histograms.length);
  if (!runs.length) { view.replaceChildren(empty('histograms')); return; }
  const match = matcher(settings.tags), cards = [];
  for (const run of runs) {
    const all = await load(run, 'histograms');
    for (const [tag, rows] of Object.entries(all)) if (match(tag) && rows.length) cards.push(h('div', { class: 'card' }, h('h3', {}, h('span', { title: tag }, tag), h('span', { class: 'dim' }, run.name)), ridges(rows, run.color)));
  }
  view.replaceChildren(h('div', { class: 'charts' }, cards));
}

/** Distributions of steps one behind the other, the newest in front. */
function ridges(rows, color) {
  const kept = rows.length > 28 ? rows.filter((_, i) => i % Math.ceil(rows.length / 28) === 0 || i === rows.length - 1) : rows;
  const width = 360, height = 230, left = 8, right = 52, bottom = 20, top = 14;
  let low = Infinity, high = -Infinity, most = 0;
  const densities = kept.map((row) => row.counts.map((c, i) => {
    const w = row.edges[i + 1] - row.edges[i];
    return w > 0 ? c / w : 0;
  }));
  kept.forEach((row, k) => {
    low = Math.min(low, row.edges[0]); high = Math.max(high, row.edges[row.edges.length - 1]);
  });
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  // Values spread over equal cells, so that buckets of all widths compare.
  const CELLS = 80, cell = (high - low) / CELLS;
  const profiles = kept.map((row, k) => {
    const profile = new Array(CELLS).fill(0);
    row.counts.forEach((c, i) => {
      const a = row.edges[i], b = row.edges[i + 1];
      if (!(c > 0)) return;
      if (!(b > a)) { profile[Math.min(CELLS - 1, Math.max(0, Math.floor((a - low) / cell)))] += c; return; }
      const first = Math.max(0, Math.floor((a - low) / cell)), last = Math.min(CELLS - 1, Math.floor((b - low) / cell));
      for (let j = first; j <= last; j++) {
        const overlap = Math.min(b, low + (j + 1) * cell) - Math.max(a, low + j * cell);
        if (overlap > 0) profile[j] += (c * overlap) / (b - a);
      }
    });
    most = Math.max(most, ...profile);
    return profile;
  });
  const gap = kept.length > 1 ? (height - top - bottom - 60) / (kept.length - 1) : 0;
  const X = (j) => left + ((j + 0.5) / CELLS) * (width - left - right);
  const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', class: 'ridges' });
  profiles.forEach((profile, k) => {
    const base = top + 60 + k * gap;
    const d = `M${left} ${base}` + profile.map((v, j) => `L${X(j).toFixed(1)} ${(base - (v / (most || 1)) * 58).toFixed(1)}`).join('') + `L${width - right} ${base}Z`;
    const share = kept.length > 1 ? k / (kept.length - 1) : 1;
    svg.append(s('path', { d, fill: `color-mix(in srgb, ${color} ${Math.round(35 + 55 * share)}%, var(--panel))`, stroke: 'var(--panel)', 'stroke-width': 0.8 }));
    const every = Math.max(1, Math.ceil(kept.length / 7));
    if (k % every === 0 || k === kept.length - 1) if (k === kept.length - 1 || kept.length - 1 - k >= every) svg.append(s('text', { x: width - right + 6, y: base + 4 }, count(kept[k].step)));
  });
  [0, 0.5, 1].forEach((at) => svg.append(s('text', { x: left + at * (width - left - right), y: height - 4, 'text-anchor': at === 0 ? 'start' : at === 1 ? 'end' : 'middle' }, short(low + at * (high - low)))));
  return svg;
}

async function texts(view) {
  const runs = shownRuns().filter((run) => run.texts.length);
  if (!runs.length) { view.replaceChildren(empty('texts')); return; }
  const match = matcher(settings.tags), cards = [];
  for (const run of runs) {
    const all = await load(run, 'texts');
    for (const [tag, rows] of Object.entries(all)) {
      if (!match(tag)) continue;
      cards.push(h('div', { class: 'card wide' }, h('h3', {}, h('span', {}, tag), h('span', { class: 'dim' }, run.name)),
        [...rows].reverse().slice(0, 20).map((row) => h('div', { class: 'text', style: { '--run': run.color } }, h('div', { class: 'dim' }, `step ${count(row.step)}`), h('div', { class: 'markdown' }, markdown(row.text))))));
    }
  }
  view.replaceChildren(h('div', { class: 'charts' }, cards));
}

/** What is shown of a log: its text as far as it was read. */
const log = { key: '', to: undefined, text: '' };
// Colours and movements that programs send to terminals.
const clean = (text) => text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '').replace(/[^\n]*\r(?!\n)/g, '');

async function logs(view) {
  const run = chosen((r) => r.logs.length);
  if (!run) { view.replaceChildren(empty('logs')); return; }
  const file = run.logs.includes(settings.file) ? settings.file : run.logs[0];
  const key = `${run.id} ${file}`;
  if (log.key !== key) Object.assign(log, { key, to: undefined, text: '' });
  const got = await loadLog(run, file, log.to);
  if (got && log.key === key) {
    if (log.to !== undefined && got.from !== log.to) log.text = '';
    log.text = (log.text + got.text).slice(-2_000_000);
    log.to = got.to;
  }
  let pre = view.querySelector('.log pre');
  if (!pre) {
    pre = h('pre');
    view.replaceChildren(h('div', { class: 'log', tabindex: 0 }, pre));
  }
  const box = pre.parentElement, follow = box.scrollTop + box.clientHeight >= box.scrollHeight - 40;
  const match = matcher(settings.lines);
  const text = clean(log.text);
  const lines = settings.lines ? text.split('\n').filter(match).join('\n') : text;
  if (pre.textContent !== lines) {
    pre.textContent = lines || 'The log is empty.';
    if (follow) box.scrollTop = box.scrollHeight;
  }
}

/** What to do where there is nothing to see. */
export function empty(what) {
  if (!state.loaded) return note('Reading the runs…');
  if (!state.runs.size) return note('There are no runs here yet. A run is a directory with metrics.jsonl (the Trainer writes it), TensorBoard event files or metrics.csv; new ones appear by themselves.');
  if (!shownRuns().length) return note('No run is selected.');
  return note({
    curves: 'No curve of the selected runs has this name.',
    system: 'The selected runs have no figures of the system. The Trainer writes them by default; in other programs log values named system/….',
    ranks: 'The selected runs have no figures of ranks: the Trainer writes system/rank-N.jsonl.',
    histograms: 'No histograms were logged: Loggers::histogram, or SummaryWriter.add_histogram, does.',
    images: 'No images were logged: Loggers::image, or SummaryWriter.add_image, does.',
    audio: 'No sounds were logged: Loggers::audio, or SummaryWriter.add_audio, does.',
    prCurves: 'No curves of precision and recall were logged: Loggers::pr_curve, or SummaryWriter.add_pr_curve, does.',
    checkpoints: 'The selected runs have no checkpoints: checkpoints/checkpoint-N.pt and Lightning’s *.ckpt are shown here.',
    models: 'The selected runs have no exported models: .rlm files in a run’s directory, which rushlight::export and torch.export.save write, are drawn here.',
    texts: 'No texts were logged: Loggers::text, or SummaryWriter.add_text, does.',
    logs: 'The selected runs have no logs: files below logs in a run’s directory are shown here; rushlight run writes what each rank prints to logs/console-rank-N.log.',
    runs: 'No run is selected.',
  }[what]);
}

export const views = {
  curves: { title: 'Curves', draw: curves, tools: ['x', 'smoothing', 'logY', 'logX', 'outliers', 'group', 'tags'], count: () => metricTags().length },
  compare: { title: 'Compare', draw: compare, tools: ['metric'], count: () => shownRuns().length + shownTrials().length },
  system: { title: 'System', draw: system, tools: ['x', 'smoothing', 'tags'] },
  ranks: { title: 'Ranks', draw: ranks, tools: ['run', 'x', 'smoothing', 'tags'], has: (r) => r.rankList.length, size: (r) => r.rankList.length, count: () => Math.max(0, ...shownRuns().map((r) => r.rankList.length)) },
  distributions: { title: 'Distributions', draw: distributions, tools: ['tags'], count: () => new Set(shownRuns().flatMap((r) => r.histograms)).size },
  images: { title: 'Images', draw: images, tools: ['tags'], count: () => new Set(shownRuns().flatMap((r) => r.images)).size },
  audio: { title: 'Audio', draw: sounds, tools: ['tags'], count: () => new Set(shownRuns().flatMap((r) => r.audio)).size },
  prCurves: { title: 'PR curves', draw: prCurves, tools: ['tags'], count: () => new Set(shownRuns().flatMap((r) => r.pr_curves)).size },
  checkpoints: { title: 'Checkpoints', draw: checkpoints, tools: ['metric'], count: () => shownRuns().reduce((n, r) => n + r.checkpoints, 0) },
  models: { title: 'Models', draw: models, tools: [], count: () => shownRuns().reduce((n, r) => n + r.models.length, 0) },
  texts: { title: 'Text', draw: texts, tools: ['tags'], count: () => new Set(shownRuns().flatMap((r) => r.texts)).size },
  logs: { title: 'Logs', draw: logs, tools: ['run', 'file', 'lines'], has: (r) => r.logs.length, count: () => shownRuns().reduce((n, r) => n + r.logs.length, 0) },
};
