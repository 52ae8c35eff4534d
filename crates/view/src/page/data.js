// The runs as the server tells of them, kept current by server-sent events.

const COLORS = ['#3b7dd8', '#e07b39', '#3a9a5b', '#c9485b', '#8561c5', '#a9782f', '#d05fa2', '#2aa3b5', '#8a9a1e', '#7b8794'];
const SUMMARY_PAUSE = 1500;
/** Of more runs than MANY only the FEW newest are shown at first. */
const MANY = 20, FEW = 10;

export const state = {
  root: '', loaded: false, cut: false, connected: false,
  /** Runs by number; each has the server's summary and what was fetched of it. */
  runs: new Map(),
  /** Names of runs that are not shown. */
  hidden: new Set(),
  /** Whether the page chooses which runs are shown; until the user does. */
  chooses: true,
};

const listeners = new Set();
export const onChange = (f) => listeners.add(f);
const notify = () => listeners.forEach((f) => f());

/** Numbers that are not finite come as texts. */
export const number = (v) => (typeof v === 'number' ? v : typeof v === 'string' ? Number(v) : NaN);

/** What a page without a server has with it: answers by what is asked. */
const saved = (() => { const element = document.getElementById('rushlight-data'); return element && JSON.parse(element.textContent); })();

async function get(what, query) {
  if (saved) return saved[[what, query.run, query.file].filter((part) => part !== undefined).join(' ')] || null;
  const answer = await fetch(`/api/${what}?${new URLSearchParams(query)}`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${what}: ${answer.status}`);
  return answer.json();
}

/** Keeps notes and tags in a run's directory. */
export async function keepNotes(run, notes) {
  const answer = await fetch(`/api/notes?run=${run.id}`, { method: 'POST', headers: { 'X-Rushlight': '1', 'Content-Type': 'application/json' }, body: JSON.stringify(notes) });
  if (!answer.ok) throw new Error(await answer.text());
  run.notes = notes;
  notify();
}

/** A colour that stays with the name of a run, whichever others there are. */
function color(name) {
  let hash = 2166136261;
  for (const c of name) hash = Math.imul(hash ^ c.codePointAt(0), 16777619);
  return (hash >>> 0) % COLORS.length;
}

function assignColors() {
  const taken = new Set();
  for (const run of state.runs.values()) if (run.color) taken.add(run.color);
  for (const run of state.runs.values()) {
    if (run.color) continue;
    // The next colour that no run has; after ten of them, hues far from the ones before.
    const first = color(run.name);
    const free = COLORS.map((_, i) => COLORS[(first + i) % COLORS.length]).find((c) => !taken.has(c));
    run.color = free || `hsl(${Math.round(taken.size * 137.508) % 360} ${[58, 75, 42][taken.size % 3]}% ${[46, 58, 36][(taken.size >> 1) % 3]}%)`;
    taken.add(run.color);
  }
}

async function loadSummary() {
  const found = await get('runs', {});
  Object.assign(state, { root: found.root, loaded: found.loaded, cut: found.cut });
  const known = new Set();
  for (const summary of found.runs) {
    known.add(summary.id);
    const metrics = new Map();
    for (const [tag, row] of Object.entries(summary.metrics)) {
      metrics.set(tag, { step: row[0], last: number(row[1]), min: number(row[2]), max: number(row[3]) });
    }
    const former = state.runs.get(summary.id);
    // A server that was started again counts anew.
    const run = (former && former.name === summary.name && former.seq <= summary.seq && former)
      || { series: new Map(), seriesSeq: 0, ranks: new Map(), ranksSeq: 0, cache: new Map(), version: 0 };
    Object.assign(run, summary, { metrics, rankList: summary.ranks });
    run.ranks = run.rankCurves || (run.rankCurves = new Map());
    state.runs.set(summary.id, run);
  }
  for (const id of state.runs.keys()) if (!known.has(id)) state.runs.delete(id);
  assignColors();
  chooseRuns();
}

/** Hides all but the newest of many runs. */
function chooseRuns() {
  const runs = sortedRuns();
  if (!state.chooses || runs.length <= MANY) return;
  const newest = [...runs].sort((a, b) => (b.last_time || 0) - (a.last_time || 0) || b.name.localeCompare(a.name, undefined, { numeric: true })).slice(0, FEW);
  state.hidden = new Set(runs.filter((run) => !newest.includes(run)).map((run) => run.name));
  if (state.loaded) state.chooses = false;
}

function append(curves, tag, got) {
  let curve = curves.get(tag);
  if (!curve || got.all) { curve = { steps: [], times: [], values: [] }; curves.set(tag, curve); }
  for (let i = 0; i < got.steps.length; i++) {
    curve.steps.push(got.steps[i]);
    curve.times.push(number(got.times[i]));
    curve.values.push(number(got.values[i]));
  }
  curve.changed = (curve.changed || 0) + 1;
}

/** Fetches what is new of a run's curves. */
export async function loadScalars(run) {
  if (run.busy || run.seriesSeq >= run.seq) return false;
  run.busy = true;
  try {
    const got = await get('scalars', { run: run.id, since: run.seriesSeq });
    if (!got) return false;
    for (const [tag, series] of Object.entries(got.series)) append(run.series, tag, series);
    for (const [tag, curve] of run.series) {
      // Pieces add up: a curve that has grown long is fetched anew, thinned.
      if (curve.values.length > 8000) { run.seriesSeq = 0; run.series.delete(tag); run.busy = false; return loadScalars(run); }
    }
    run.seriesSeq = got.seq;
    return true;
  } finally { run.busy = false; }
}

/** Fetches what is new of the curves of a run's ranks. */
export async function loadRanks(run) {
  if (!run.rankList.length || run.ranksBusy || run.ranksSeq >= run.seq) return false;
  run.ranksBusy = true;
  try {
    const got = await get('ranks', { run: run.id, since: run.ranksSeq });
    if (!got) return false;
    for (const [rank, curves] of Object.entries(got.ranks)) {
      const key = Number(rank);
      if (!run.ranks.has(key)) run.ranks.set(key, new Map());
      for (const [tag, series] of Object.entries(curves)) append(run.ranks.get(key), tag, series);
    }
    run.ranksSeq = got.seq;
    return true;
  } finally { run.ranksBusy = false; }
}

/** Loads what is new of several runs, for about a second. Returns whether there is more. */
export async function loadSome(runs, loaders) {
  const end = performance.now() + 1000;
  const left = runs.filter((run) => run.seriesSeq < run.seq || (loaders.includes(loadRanks) && run.rankList.length && run.ranksSeq < run.seq));
  while (left.length && performance.now() < end) await Promise.all(left.splice(0, 6).flatMap((run) => loaders.map((f) => f(run))));
  return left.length > 0;
}

/** Histograms, images, sounds, texts, curves of precision and recall or checkpoints of a run; fetched again when the run has changed. */
export async function load(run, what) {
  const cached = run.cache.get(what);
  if (cached && cached.seq >= run.seq) return cached.value;
  const got = await get(what, { run: run.id });
  const value = got ? got[what] : {};
  run.cache.set(what, { seq: got ? got.seq : run.seq, value });
  return value;
}

export const loadModel = (run, file) => get('model', { run: run.id, file });
export const loadLog = (run, file, from) => get('log', from === undefined ? { run: run.id, file } : { run: run.id, file, from });
const mediaUrl = (what) => (run, tag, step) => (saved ? saved[`${what} ${run.id} ${step} ${tag}`] || '' : `/api/${what}?${new URLSearchParams({ run: run.id, tag, step })}`);
export const imageUrl = mediaUrl('image');
export const soundUrl = mediaUrl('sound');
/** Whether the page is a file: it is not followed, and nothing is written. */
export const isSaved = Boolean(saved);

/** Runs that are shown, in the order of their names. */
export function shownRuns() {
  return sortedRuns().filter((run) => !state.hidden.has(run.name));
}

const byName = (runs) => runs.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));

/** The run that a folder of `add_hparams` belongs to: SummaryWriter names such folders by their time. */
function parentOf(run, names) {
  const [, parent] = /^(.+)\/\d{9,}\.\d+$/.exec(run.name) || [];
  return names.has(parent) ? parent : undefined;
}

export function sortedRuns() {
  const names = new Set([...state.runs.values()].map((run) => run.name));
  return byName([...state.runs.values()].filter((run) => !parentOf(run, names)));
}

/** Trials that `add_hparams` of the shown runs has logged. They are compared, not listed. */
export function shownTrials() {
  const names = new Set(shownRuns().map((run) => run.name));
  return byName([...state.runs.values()].filter((run) => parentOf(run, names)));
}

let refreshing = false, again = false, lastSummary = 0;

async function refresh(message) {
  if (refreshing) { again = message || again; return; }
  refreshing = true;
  try {
    const ids = message ? Object.keys(message.runs) : [];
    const other = !message || ids.length !== state.runs.size || ids.some((id) => !state.runs.has(Number(id))) || !state.loaded;
    if (other || performance.now() - lastSummary > SUMMARY_PAUSE) {
      await loadSummary();
      lastSummary = performance.now();
    } else {
      for (const id of ids) state.runs.get(Number(id)).seq = message.runs[id];
    }
    notify();
  } catch (e) {
    console.warn('rushlight: the server did not answer', e.message);
  } finally {
    refreshing = false;
    if (again) { const next = again; again = false; setTimeout(() => refresh(next === true ? null : next), 200); }
  }
}

/** Follows the server; the browser connects again by itself when it was away. */
export function follow() {
  if (saved) { refresh(); return; }
  const source = new EventSource('/api/live');
  source.addEventListener('change', (event) => {
    state.connected = true;
    refresh(JSON.parse(event.data));
  });
  source.onopen = () => { state.connected = true; notify(); };
  source.onerror = () => { state.connected = false; notify(); };
}
