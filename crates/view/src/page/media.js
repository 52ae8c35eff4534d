// Views of what was logged by step beside numbers (images, sounds, curves of precision and recall), of checkpoints and exported models.

import { shownRuns, load, loadScalars, loadSome, loadModel, imageUrl, soundUrl, number } from './data.js';
import { Chart, h, short, count, bytes } from './chart.js';
import { settings, matcher, empty, shown, defaultMetric } from './views.js';

/** The place of the sliders, by view, run and name: kept when the view is drawn again. */
const steps = new Map();

/** A slider over the steps of something; `show` gets the chosen row. Nothing where there is one step only. */
function stepper(key, tag, rows, show) {
  const at = steps.has(key) ? Math.min(steps.get(key), rows.length - 1) : rows.length - 1;
  show(rows[at]);
  if (rows.length < 2) return '';
  return h('input', { type: 'range', min: 0, max: rows.length - 1, value: at, 'aria-label': `step of ${tag}`, oninput: (e) => {
    steps.set(key, Number(e.target.value));
    show(rows[Number(e.target.value)]);
  } });
}

/** Cards of everything of a kind in the shown runs; `item` gives an element and what to do for another step. */
async function gallery(view, what, item) {
  const runs = shownRuns().filter((run) => run[what].length);
  if (!runs.length) { view.replaceChildren(empty(what)); return; }
  const match = matcher(settings.tags), cards = [];
  for (const run of runs) {
    for (const [tag, rows] of Object.entries(await load(run, what))) {
      if (!match(tag) || !rows.length) continue;
      const label = h('span', { class: 'dim' }), [element, show] = item(run, tag);
      const slider = stepper(`${what} ${run.id} ${tag}`, tag, rows, (row) => { show(row); label.textContent = `step ${count(row.step)}`; });
      cards.push(h('div', { class: 'card' }, h('h3', {}, h('span', { title: tag }, tag), label), element, slider, h('p', { class: 'dim' }, run.name)));
    }
  }
  // A sound that plays is not interrupted by the run's growth.
  const key = JSON.stringify([settings.tags, runs.map((run) => [run.id, run.cache.get(what).value])]);
  if (view.firstElementChild?.dataset.key === key) return;
  view.replaceChildren(h('div', { class: 'gallery', 'data-key': key }, cards));
}

export const images = (view) => gallery(view, 'images', (run, tag) => {
  const img = h('img', { loading: 'lazy' });
  return [img, (row) => { img.src = imageUrl(run, tag, row.step); img.alt = `${tag}, step ${row.step}`; }];
});

export const sounds = (view) => gallery(view, 'audio', (run, tag) => {
  const audio = h('audio', { controls: true, preload: 'metadata' });
  return [audio, (row) => { audio.src = soundUrl(run, tag, row.step); audio.setAttribute('aria-label', `${tag}, step ${row.step}`); }];
});

/** Charts of precision and recall, kept from one drawing to the next. */
const charts = new Map();

/** One chart for each name, with a curve for each run; the slider chooses the step. */
export async function prCurves(view) {
  const runs = shownRuns().filter((run) => run.pr_curves.length);
  if (!runs.length) { view.replaceChildren(empty('prCurves')); return; }
  const match = matcher(settings.tags), tags = new Map();
  for (const run of runs) {
    for (const [tag, rows] of Object.entries(await load(run, 'pr_curves'))) {
      if (!match(tag) || !rows.length) continue;
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push([run, rows]);
    }
  }
  const cards = [...tags].map(([tag, found]) => {
    if (!charts.has(tag)) charts.set(tag, { chart: new Chart(tag), under: h('div', { class: 'under' }) });
    const { chart, under } = charts.get(tag);
    const all = [...new Set(found.flatMap(([, rows]) => rows.map((row) => row.step)))].sort((a, b) => a - b).map((step) => ({ step }));
    const label = h('p', { class: 'dim' });
    const slider = stepper(`pr ${tag}`, tag, all, ({ step }) => {
      label.textContent = `recall to the right, precision upwards; step ${count(step)}`;
      chart.set(found.flatMap(([run, rows]) => lineOf(run, rows, step)), { xKind: 'recall', fromZero: true });
    });
    if (!chart.element.contains(under)) chart.element.append(under);
    // A slider that is being moved stays.
    if (!under.contains(document.activeElement)) under.replaceChildren(slider, label);
    return chart.element;
  });
  const kept = view.firstElementChild;
  if (!kept || kept.children.length !== cards.length || cards.some((card, i) => card !== kept.children[i])) view.replaceChildren(h('div', { class: 'charts' }, cards));
}

/** A run's curve at a step, or at its last step before. Thresholds above every prediction have no precision. */
function lineOf(run, rows, step) {
  const row = [...rows].reverse().find((r) => r.step <= step);
  if (!row) return [];
  const kept = row.recall.map((_, i) => i).filter((i) => row.tp[i] + row.fp[i] > 0);
  return [{ name: run.name, color: run.color, x: kept.map((i) => row.recall[i]), y: kept.map((i) => row.precision[i]) }];
}

let order = { key: 'step', down: true };

/** All checkpoints of the shown runs, with the metric they were saved with and the chosen curve's value at their step. */
export async function checkpoints(view) {
  const runs = shownRuns().filter((run) => run.checkpoints);
  if (!runs.length) { view.replaceChildren(empty('checkpoints')); return; }
  const more = await loadSome(runs, [loadScalars]);
  const metric = settings.metric || defaultMetric();
  const rows = [];
  for (const run of runs) {
    const curve = run.series.get(metric);
    const found = await load(run, 'checkpoints');
    for (const c of Array.isArray(found) ? found : []) {
      let value;
      if (curve && c.step !== null) for (let i = 0; i < curve.steps.length && curve.steps[i] <= c.step; i++) value = curve.values[i];
      rows.push({ ...c, run, value, metric: c.metric === null ? undefined : number(c.metric) });
    }
  }
  const columns = [
    { key: 'run', title: 'run', value: (r) => r.run.name, cell: (r) => [h('span', { class: 'swatch', style: { background: r.run.color } }), r.run.name] },
    { key: 'name', title: 'checkpoint', value: (r) => r.name, cell: (r) => r.name },
    { key: 'step', title: 'step', value: (r) => r.step, cell: (r) => (r.step === null ? '' : count(r.step)) },
    { key: 'epoch', title: 'epoch', value: (r) => r.epoch, cell: (r) => shown(r.epoch) },
    { key: 'metric', title: 'saved metric', value: (r) => r.metric, cell: (r) => (r.metric === undefined ? '' : `${r.metric_name ? `${r.metric_name} ` : ''}${short(r.metric)}`) },
    { key: 'value', title: `${metric} at that step`, value: (r) => r.value, cell: (r) => shown(r.value) },
    { key: 'bytes', title: 'size', value: (r) => r.bytes, cell: (r) => bytes(r.bytes) },
    { key: 'time', title: 'saved', value: (r) => number(r.time), cell: (r) => (Number.isFinite(number(r.time)) ? new Date(number(r.time) * 1000).toLocaleString() : '') },
  ];
  const column = columns.find((c) => c.key === order.key);
  const none = (v) => v === undefined || v === null || Number.isNaN(v);
  rows.sort((a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    if (none(x) || none(y)) return none(x) - none(y);
    const c = typeof x === 'number' ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
    return order.down ? -c : c;
  });
  const sortBy = (key) => { order = { key, down: order.key === key && !order.down }; checkpoints(view); };
  view.replaceChildren(h('div', { class: 'scroll' }, h('table', { class: 'data', id: 'checkpoints' },
    h('thead', {}, h('tr', {}, columns.map((c) => h('th', {
      'aria-sort': c === column ? (order.down ? 'descending' : 'ascending') : null, tabindex: 0, title: `sort by ${c.title}`,
      onclick: () => sortBy(c.key), onkeydown: (e) => { if (e.key === 'Enter') sortBy(c.key); },
    }, c.title, c === column ? (order.down ? ' ↓' : ' ↑') : '')))),
    h('tbody', {}, rows.map((row) => h('tr', {}, columns.map((c) => h('td', {}, c.cell(row)))))))));
  return more;
}

/** Cards of exported models, each drawn once; a file that was written anew is drawn when the page is loaded again. */
const drawn = new Map();
const MOST_MODELS = 12;

/** The graph of the exported models in the shown runs' directories. */
export async function models(view) {
  const all = shownRuns().flatMap((run) => run.models.map((file) => [run, file])).slice(0, MOST_MODELS);
  if (!all.length) { view.replaceChildren(empty('models')); return; }
  const cards = [];
  for (const [run, file] of all) {
    const key = `${run.id} ${file}`;
    if (!drawn.has(key)) {
      const got = await loadModel(run, file);
      if (!got) continue;
      // Markup that the server has made of the program: an SVG without scripts or styles.
      const svg = got.svg && new DOMParser().parseFromString(got.svg, 'image/svg+xml').documentElement;
      drawn.set(key, h('div', { class: 'card wide' }, h('h3', {}, h('span', {}, file), h('span', { class: 'dim' }, run.name)),
        got.error ? h('p', { class: 'warning' }, got.error) : h('div', { class: 'model', tabindex: 0 }, svg),
        got.note ? h('p', { class: 'dim' }, got.note) : '',
        got.text ? h('details', {}, h('summary', {}, 'Program'), h('pre', {}, got.text)) : ''));
    }
    cards.push(drawn.get(key));
  }
  if (cards.length !== view.children.length || cards.some((card, i) => card !== view.children[i])) view.replaceChildren(...cards);
}
