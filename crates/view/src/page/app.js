// The page: tabs, the list of runs, the tools of a view, and when to draw.

import { state, follow, onChange, sortedRuns, shownRuns, keepNotes, isSaved } from './data.js';
import { h, count, duration } from './chart.js';
import { views, settings, defaults, metricTags, defaultMetric, chosen, tagsOf, redraw } from './views.js';
import { markdown } from './text.js';
import { groupNames } from './group.js';

const $ = (id) => document.getElementById(id);

/** The address keeps the view, so that it can be reloaded and sent to others. */
function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  Object.assign(settings, defaults);
  for (const [name, value] of query) {
    if (name === 'hide') {
      value.split('|').filter(Boolean).forEach((n) => state.hidden.add(n));
      state.chooses = false;
    }
    else if (name === 'smoothing') settings.smoothing = Math.min(0.99, Math.max(0, Number(value) || 0));
    else if (['logX', 'logY', 'outliers', 'smoothAll'].includes(name)) settings[name] = value === '1';
    else if (name in settings) settings[name] = value;
  }
  if (!(settings.tab in views)) settings.tab = 'curves';
}

/** `step`: the browser's Back returns to the address before. */
function writeAddress(step = false) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) {
    if (value === '' || value === defaults[name]) continue;
    query.set(name, typeof value === 'boolean' ? (value ? '1' : '0') : value);
  }
  const hidden = sortedRuns().map((run) => run.name).filter((name) => state.hidden.has(name));
  if (hidden.length && hidden.length < 40) query.set('hide', hidden.join('|'));
  const hash = query.toString();
  const address = hash ? `#${hash}` : location.pathname;
  if (step) history.pushState(null, '', address);
  else history.replaceState(null, '', address);
}

let drawing = false, drawAgain = false;

/** Draws the view; what happens meanwhile is drawn after. */
async function draw() {
  if (drawing) { drawAgain = true; return; }
  drawing = true;
  try {
    const tab = settings.tab;
    // A view of many runs is drawn again as they arrive.
    if (await views[tab].draw(tab === settings.tab ? $('view') : h('div'))) drawAgain = true;
    document.body.dataset.drawn = tab;
  } catch (e) {
    console.warn('rushlight: the view could not be drawn', e.message);
  } finally {
    drawing = false;
    if (drawAgain) { drawAgain = false; requestAnimationFrame(draw); }
  }
}

function set(name, value) {
  const other = settings[name] !== value;
  settings[name] = value;
  writeAddress(name === 'tab' && other);
  if (name === 'tab') { $('view').replaceChildren(); drawTabs(); window.scrollTo(0, 0); }
  drawTools();
  draw();
}

/** The tab that was brought into sight, and where the bar was then: whoever scrolls it is left alone. */
let inSight = { tab: null, at: 0 };

function drawTabs() {
  const bar = $('tabs'), scrolled = bar.scrollLeft;
  bar.replaceChildren(...Object.entries(views).map(([name, view]) => h('button', {
    type: 'button', role: 'tab', 'aria-selected': String(name === settings.tab), 'data-tab': name, onclick: () => set('tab', name),
  }, view.title, view.count && view.count() ? h('span', { class: 'count' }, String(view.count())) : '')));
  bar.scrollLeft = scrolled;
  const tab = bar.querySelector('[aria-selected=true]');
  if (tab && (inSight.tab !== settings.tab || inSight.at === scrolled)) {
    bar.scrollLeft = tab.offsetLeft - bar.offsetLeft - (bar.clientWidth - tab.offsetWidth) / 2;
    inSight = { tab: settings.tab, at: bar.scrollLeft };
  }
}

const select = (label, name, options, value) => (options.length === 0 ? [] : h('label', {}, label, h('select', { 'data-setting': name, onchange: (e) => set(name, e.target.value) },
  options.map(([v, text]) => h('option', { value: v, selected: v === value }, text)))));
const toggle = (name, text, title, on) => h('button', { type: 'button', title, 'data-setting': name, 'aria-pressed': String(on), onclick: () => set(name, !settings[name]) }, text);

const tools = {
  x: () => select('x axis', 'x', [['step', 'step'], ['time', 'time'], ['epoch', 'epoch']], settings.x),
  smoothing: () => {
    const output = h('output', {}, settings.smoothing.toFixed(2));
    return h('label', { title: 'weight of earlier values in a moving average; until it is moved, curves of fewer than 50 points are not smoothed' }, 'smoothing', h('input', {
      type: 'range', min: 0, max: 0.99, step: 0.01, value: settings.smoothing, 'data-setting': 'smoothing',
      oninput: (e) => { Object.assign(settings, { smoothing: Number(e.target.value), smoothAll: true }); output.textContent = settings.smoothing.toFixed(2); draw(); },
      onchange: () => writeAddress(),
    }), output);
  },
  logY: () => toggle('logY', 'log y', 'logarithmic values', settings.logY),
  logX: () => toggle('logX', 'log x', 'logarithmic x axis', settings.logX),
  outliers: () => toggle('outliers', 'outliers', 'whether the scale shows the outermost 2 % of values', settings.outliers),
  tags: () => h('input', { type: 'search', placeholder: 'filter names (regex)', 'aria-label': 'Filter names', 'data-setting': 'tags', value: settings.tags, oninput: (e) => { settings.tags = e.target.value; writeAddress(); draw(); } }),
  group: () => {
    const names = groupNames(shownRuns());
    return names.length ? select('group by', 'group', [['', 'each run'], ...names.map((name) => [name, name])], names.includes(settings.group) ? settings.group : '') : [];
  },
  metric: () => (!metricTags().length ? [] : [
    select('metric', 'metric', metricTags().map((tag) => [tag, tag]), settings.metric || defaultMetric()),
    select('value', 'by', [['last', 'newest'], ['min', 'least'], ['max', 'greatest']], settings.by),
  ]),
  run: () => {
    const has = views[settings.tab].has || (() => true);
    const run = chosen(has, views[settings.tab].size);
    return select('run', 'run', shownRuns().filter(has).map((r) => [r.name, r.name]), run && run.name);
  },
  file: () => {
    const run = chosen((r) => r.logs.length);
    return select('file', 'file', (run ? run.logs : []).map((name) => [name, name]), settings.file);
  },
  lines: () => h('input', { type: 'search', placeholder: 'filter lines (regex)', 'aria-label': 'Filter lines', value: settings.lines, oninput: (e) => { settings.lines = e.target.value; draw(); } }),
};

let toolsKey = '';

/** The tools are made anew only when they differ: a slider must not vanish under the finger. */
function drawTools() {
  const names = views[settings.tab].tools;
  const lists = names.includes('group') ? JSON.stringify(groupNames(shownRuns())) : names.includes('metric') || names.includes('run') ? JSON.stringify([metricTags(), shownRuns().map((r) => [r.name, r.logs, r.rankList.length])]) : '';
  const key = JSON.stringify([settings.tab, settings.x, settings.logX, settings.logY, settings.outliers, settings.metric, settings.by, settings.run, settings.file, settings.group, lists]);
  if (key === toolsKey) return;
  toolsKey = key;
  $('toolbar').replaceChildren(...names.flatMap((name) => tools[name]()).flat());
}

/** What the mark of a run says. A green dot is a process that is there. */
const STATES = {
  running: 'running: its process is there', finished: 'finished', failed: 'ended with an error', preempted: 'saved its state and stopped: it can be continued',
  died: 'died: its process is gone and did not say why', lost: 'its machine has written nothing for two minutes',
  recent: 'written to in the last 90 seconds; it does not say whether it runs',
};

function drawRuns() {
  const text = $('run-filter').value;
  let match = (name) => name.includes(text);
  try { const regex = new RegExp(text, 'i'); match = (name) => regex.test(name); } catch { /* plain text */ }
  const runs = sortedRuns();
  const items = runs.filter((run) => match(run.name) || tagsOf(run).some(match)).slice(0, 500).map((run) => h('li', { style: { '--run': run.color } },
    h('label', { title: run.name },
      h('input', { type: 'checkbox', checked: !state.hidden.has(run.name), onchange: (e) => { if (e.target.checked) state.hidden.delete(run.name); else state.hidden.add(run.name); changed(); } }),
      h('span', { class: 'swatch' }), h('span', { class: 'name' }, run.name)),
    tagsOf(run).slice(0, 3).map((tag) => h('span', { class: 'tag' }, tag)),
    run.state ? h('span', { class: `state ${run.state}`, title: STATES[run.state] + (run.reason ? `: ${run.reason}` : ''), role: 'img', 'aria-label': run.state }) : '',
    Object.keys(run.problems).length ? h('span', { class: 'warning', title: Object.entries(run.problems).map(([k, v]) => `${k}: ${v}`).join('\n') }, '!') : '',
    h('button', { class: 'info', type: 'button', title: 'about this run', 'aria-label': `about ${run.name}`, onclick: () => about(run) }, 'i')));
  const focused = document.activeElement && document.activeElement.closest('#runs');
  if (!focused || items.length !== $('runs').children.length) $('runs').replaceChildren(...items);
  $('run-count').textContent = runs.length ? `${shownRuns().length} of ${runs.length}${state.cut ? ', more were left out' : ''}` : '';
}

/** Everything that is known of a run beside its curves. */
function about(run) {
  const rows = (object) => Object.entries(object || {}).flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v !== null && typeof v === 'object' ? JSON.stringify(v) : String(v))]);
  const part = (title, object) => (object && Object.keys(object).length ? [h('h2', {}, title), h('dl', {}, rows(object))] : []);
  const model = run.model ? { ...run.model } : {};
  const text = model.text;
  delete model.text;
  const dialog = $('dialog');
  dialog.replaceChildren(h('h1', { tabindex: -1, autofocus: true }, run.name),
    ...(run.state ? [h('p', {}, STATES[run.state], run.reason ? `: ${run.reason}` : '')] : []), notes(run),
    h('p', { class: 'dim' }, run.first_time ? `${new Date(run.first_time * 1000).toLocaleString()}, ${duration(run.last_time - run.first_time)}; ${count(run.metrics.size)} curves` : 'no values yet'),
    ...part('Problems', run.problems), ...part('Hyperparameters', run.hparams), ...part('Environment', run.environment), ...part('Model', model),
    ...(text ? [h('pre', {}, text)] : []), ...part('Trainer', run.trainer),
    h('p', {}, h('button', { type: 'button', onclick: () => dialog.close() }, 'close')));
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** The user's notes and tags, which are kept in the run's directory. */
function notes(run) {
  const kept = run.notes || {}, said = h('span', { class: 'dim', role: 'status' });
  const text = h('textarea', { rows: 4, placeholder: 'notes (Markdown)', 'aria-label': 'Notes' }, kept.text || '');
  const tags = h('input', { type: 'text', placeholder: 'tags, with commas between them', 'aria-label': 'Tags', value: tagsOf(run).join(', ') });
  const shown = h('div', { class: 'markdown' }, markdown(kept.text || ''));
  const keep = async () => {
    const given = { text: text.value, tags: tags.value.split(',').map((tag) => tag.trim()).filter(Boolean) };
    try { await keepNotes(run, given); said.textContent = 'kept in notes.json'; shown.replaceChildren(...markdown(given.text)); } catch (e) { said.textContent = e.message; }
  };
  return h('section', { class: 'notes' }, shown, isSaved ? '' : h('details', {}, h('summary', {}, 'Notes and tags'), text, tags, h('p', {}, h('button', { type: 'button', onclick: keep }, 'keep'), ' ', said)));
}

function drawState() {
  $('root').textContent = `\u200e${state.root}`;
  $('root').title = state.root;
  const live = $('live');
  live.className = `live ${state.connected ? 'on' : 'off'}`;
  live.lastElementChild.textContent = isSaved ? 'saved' : state.connected ? 'live' : 'not connected';
  if (isSaved) { live.className = 'live'; live.title = 'a file: it shows the runs as they were'; }
}

/** Runs were selected or left out. */
function changed() {
  state.chooses = false;
  writeAddress();
  drawRuns();
  drawTabs();
  drawTools();
  draw();
}

onChange(() => {
  drawState();
  drawRuns();
  drawTabs();
  drawTools();
  draw();
});

redraw.now = draw;
$('run-filter').addEventListener('input', drawRuns);
$('runs-all').addEventListener('click', () => { listed().forEach((run) => state.hidden.delete(run.name)); changed(); });
$('runs-none').addEventListener('click', () => { listed().forEach((run) => state.hidden.add(run.name)); changed(); });

function listed() {
  const text = $('run-filter').value;
  try { const regex = new RegExp(text, 'i'); return sortedRuns().filter((run) => regex.test(run.name) || tagsOf(run).some((tag) => regex.test(tag))); } catch { return sortedRuns().filter((run) => run.name.includes(text)); }
}

$('dialog').addEventListener('click', (e) => { if (e.target === $('dialog')) $('dialog').close(); });
// Back and Forward, or an address that was typed.
addEventListener('hashchange', () => { readAddress(); $('view').replaceChildren(); drawTabs(); drawTools(); draw(); });
if (matchMedia('(max-width: 760px)').matches) $('runs-panel').open = false;
readAddress();
drawTabs();
drawTools();
follow();
