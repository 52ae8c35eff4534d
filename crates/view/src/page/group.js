// Runs that share the value of a parameter as one curve: their mean, and the range between the least and the greatest.

const shown = (v) => (v === undefined || v === null ? 'not set' : typeof v === 'object' ? JSON.stringify(v) : String(v));

/** Parameters that differ between runs. */
export function groupNames(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.hparams)))].sort();
  return names.filter((name) => new Set(runs.map((run) => JSON.stringify(run.hparams[name]))).size > 1);
}

/** The value of a curve at x, between its points; NaN outside of them. */
function at(line, x) {
  const { x: xs, y: ys } = line;
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return NaN;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  if (xs[low] === x || high === low) return ys[low];
  return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

/** Lines of runs with a parameter's value in common, as one line with a band. */
export function grouped(lines, name) {
  const groups = new Map();
  for (const line of lines) {
    const key = shown(line.run.hparams[name]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(line);
  }
  const keys = [...groups.keys()].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  return keys.map((key) => {
    const members = groups.get(key);
    const every = [...new Set(members.flatMap((line) => line.x))].filter(Number.isFinite).sort((a, b) => a - b);
    const stride = Math.max(1, Math.ceil(every.length / 1000));
    const xs = every.filter((_, i) => i % stride === 0 || i === every.length - 1);
    const columns = xs.map((x) => members.map((line) => at(line, x)).filter(Number.isFinite));
    const of = (f) => columns.map((values) => (values.length ? f(values) : NaN));
    return {
      name: `${name} = ${key} (${members.length} ${members.length > 1 ? 'runs' : 'run'})`, color: members[0].color, x: xs,
      y: of((v) => v.reduce((a, b) => a + b, 0) / v.length), low: of((v) => Math.min(...v)), high: of((v) => Math.max(...v)),
    };
  });
}
