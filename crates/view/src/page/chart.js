// Curves as SVG: axes, zoom, a cross-hair. Everything shown is set as text, never as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes and children; texts become text nodes. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return element;
}

export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A number in few digits. */
export function short(v) {
  if (!Number.isFinite(v)) return String(v);
  const a = Math.abs(v);
  if (a === 0) return '0';
  if (a >= 1e5 || a < 1e-3) return v.toExponential(2).replace('e+', 'e').replace(/\.?0+e/, 'e');
  return String(Number(v.toPrecision(4)));
}

export function count(v) {
  const a = Math.abs(v);
  if (a >= 1e9) return `${Number((v / 1e9).toPrecision(3))}G`;
  if (a >= 1e6) return `${Number((v / 1e6).toPrecision(3))}M`;
  if (a >= 1e4) return `${Number((v / 1e3).toPrecision(3))}k`;
  return String(Number(v.toPrecision(6)));
}

export function bytes(v) {
  const a = Math.abs(v);
  for (const [unit, size] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (a >= size) return `${Number((v / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(v)} B`;
}

export function duration(v) {
  if (!Number.isFinite(v)) return '';
  const a = Math.abs(v);
  if (a < 60) return `${Number(v.toFixed(a < 10 ? 2 : 0))} s`;
  if (a < 3600) return `${Math.floor(v / 60)} min${Math.round(v % 60) ? ` ${Math.round(v % 60)} s` : ''}`;
  if (a < 86400) return `${Math.floor(v / 3600)} h${Math.round((v % 3600) / 60) ? ` ${Math.round((v % 3600) / 60)} min` : ''}`;
  return `${Math.floor(v / 86400)} d${Math.round((v % 86400) / 3600) ? ` ${Math.round((v % 86400) / 3600)} h` : ''}`;
}

/** Round values between two numbers. */
function ticks(low, high, most, times) {
  const span = high - low;
  if (!(span > 0)) return [low];
  let step = 10 ** Math.floor(Math.log10(span / most));
  if (times && span > 120) {
    step = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000].find((x) => span / x <= most) || 2592000;
  } else {
    for (const factor of [1, 2, 5, 10]) if (span / (step * factor) <= most) { step *= factor; break; }
  }
  const found = [];
  for (let v = Math.ceil(low / step) * step, n = 0; v <= high + step * 1e-9 && n < 50; v += step, n++) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  // One tick shows no scale.
  return found.length < 2 && most < 8 ? ticks(low, high, most + 1, times) : found;
}

function logTicks(low, high, most) {
  const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9), found = [];
  const every = Math.max(1, Math.ceil((last - first + 1) / most));
  for (let e = first; e <= last; e += every) found.push(e);
  // Less than two decades: round values between them.
  if (found.length < 2) return ticks(10 ** low, 10 ** high, most).filter((v) => v > 0).map(Math.log10);
  return found;
}

/** Exponential moving average without the bias of its beginning; gaps stay gaps. */
export function smooth(values, weight) {
  if (!(weight > 0)) return values;
  let mean = 0, mass = 0;
  return values.map((v) => {
    if (!Number.isFinite(v)) return v;
    mean = mean * weight + v * (1 - weight);
    mass = mass * weight + (1 - weight);
    return mean / mass;
  });
}

/** Until the user asks for it, curves of few points are drawn as they are: a mean would distort them. */
const FEW_POINTS = 50;
const smoothed = (line, { smoothing = 0, smoothAll }) => smoothing > 0 && (smoothAll || line.y.length >= FEW_POINTS);

function quantile(sorted, q) { return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(q * (sorted.length - 1))))]; }

const tooltip = () => document.getElementById('tooltip');

/** Shows rows beside a point of the page. */
export function showTooltip(x, y, content) {
  const box = tooltip();
  box.replaceChildren(content);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? Math.max(4, x - width - 16) : x + 16;
  box.style.left = `${left}px`;
  box.style.top = `${Math.max(4, Math.min(y - height / 2, innerHeight - height - 4))}px`;
}

export const hideTooltip = () => { tooltip().hidden = true; };

let ids = 0;

/**
 * A card with a title and curves. `lines`: [{name, color, x, y, dash}]; `options`: {smoothing, logX, logY, outliers, xKind, format}.
 */
export class Chart {
  constructor(title, options = {}) {
    this.id = `clip${++ids}`;
    this.title = title;
    this.lines = [];
    this.options = options;
    this.zoom = null;
    this.plot = h('div', { class: 'plot' });
    this.wideButton = h('button', { type: 'button', title: 'larger or smaller', 'aria-label': `enlarge ${title}`, onclick: () => this.toggle() }, '⤢');
    const save = (kind, what) => h('button', { type: 'button', title: `save ${what} as a file`, 'aria-label': `save ${what} of ${title}`, 'data-save': kind, onclick: () => this.save(kind) }, kind);
    this.pin = h('button', { type: 'button', class: 'pin', title: 'keep this chart at the top', 'aria-label': `pin ${title}`, onclick: () => this.options.onPin && this.options.onPin(title) }, '☆');
    this.element = h('div', { class: 'card', 'data-chart': title }, h('h3', {}, h('span', { title }, title), this.pin, h('span', { class: 'saves' }, save('csv', 'the values'), save('svg', 'the picture'), save('png', 'the picture')), this.wideButton), this.plot);
    this.visible = false;
    this.stale = true;
    Chart.observer.observe(this.element);
    this.element.chart = this;
    this.plot.addEventListener('pointerdown', (e) => this.down(e));
    this.plot.addEventListener('pointermove', (e) => this.move(e));
    this.plot.addEventListener('pointerup', (e) => this.up(e));
    this.plot.addEventListener('pointerleave', () => this.leave());
    this.plot.addEventListener('pointercancel', () => { this.drag = null; this.leave(); });
    this.plot.addEventListener('dblclick', () => { this.zoom = null; this.draw(); });
  }

  set(lines, options) {
    this.lines = lines;
    Object.assign(this.options, options);
    this.pin.textContent = this.options.pinned ? '★' : '☆';
    this.pin.setAttribute('aria-pressed', String(Boolean(this.options.pinned)));
    this.pin.hidden = !this.options.onPin;
    this.stale = true;
    if (this.visible) this.draw();
  }

  toggle() {
    this.element.classList.toggle('wide');
    this.draw();
  }

  /** Saves the values as drawn on this axis, or the picture, as a file. */
  save(kind) {
    const name = `${this.title.replace(/[^\w.-]+/g, '_')}.${kind}`;
    if (kind === 'csv') download(name, 'text/csv', csv(this.lines, this.options.xKind || 'step'));
    else if (this.frame) {
      const picture = standalone(this.plot.querySelector('svg'), this.lines);
      if (kind === 'svg') download(name, 'image/svg+xml', picture);
      else pixels(picture, (blob) => download(name, 'image/png', blob));
    }
  }

  /** Values as drawn: on a logarithmic axis their logarithms. */
  prepare() {
    const { smoothing = 0, logX, logY } = this.options;
    const fx = (v) => (logX ? (v > 0 ? Math.log10(v) : NaN) : v);
    const fy = (v) => (logY ? (v > 0 ? Math.log10(v) : NaN) : v);
    return this.lines.map((line) => {
      const weight = smoothed(line, this.options) ? smoothing : 0;
      const means = smooth(line.y, weight);
      const bound = (values) => (values ? smooth(values, weight).map(fy) : null);
      return { line, x: line.x.map(fx), y: means.map(fy), raw: weight > 0 && !line.low ? line.y.map(fy) : null, low: bound(line.low), high: bound(line.high), shown: means };
    });
  }

  range(drawn) {
    let x0 = Infinity, x1 = -Infinity;
    for (const d of drawn) for (const v of d.x) if (Number.isFinite(v)) { x0 = Math.min(x0, v); x1 = Math.max(x1, v); }
    if (this.zoom) [x0, x1] = this.zoom;
    if (!(x0 <= x1)) [x0, x1] = [0, 1];
    if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
    const values = [];
    for (const d of drawn) {
      for (let i = 0; i < d.x.length; i++) {
        if (d.x[i] < x0 || d.x[i] > x1) continue;
        if (Number.isFinite(d.y[i])) values.push(d.y[i]);
        for (const other of [d.raw, d.low, d.high]) if (other && Number.isFinite(other[i])) values.push(other[i]);
      }
    }
    values.sort((a, b) => a - b);
    let y0 = values.length ? values[0] : 0, y1 = values.length ? values[values.length - 1] : 1;
    if (this.options.outliers === false && values.length > 20) { y0 = quantile(values, 0.02); y1 = quantile(values, 0.98); }
    if (this.options.fromZero && !this.options.logY) { y0 = Math.min(0, y0); }
    if (y1 - y0 <= 1e-7 * Math.max(Math.abs(y0), Math.abs(y1))) { const pad = Math.abs(y0) * 0.1 || 0.5; y0 -= pad; y1 += pad; }
    const pad = (y1 - y0) * 0.06;
    return { x0, x1, y0: this.options.fromZero && y0 === 0 ? 0 : y0 - pad, y1: y1 + pad };
  }

  draw() {
    this.stale = false;
    const width = this.plot.clientWidth;
    if (width < 40) { this.stale = true; return; }
    const wide = this.element.classList.contains('wide');
    const height = wide ? Math.min(460, Math.max(260, width * 0.45)) : 200;
    const { logX, logY, xKind = 'step', format = short } = this.options;
    const drawn = this.prepare();
    const r = this.range(drawn);
    // Round numbers of bytes are those of KiB, MiB and so on.
    const unit = format === bytes ? 2 ** (10 * Math.max(0, Math.floor(Math.log2(Math.max(1, r.y1)) / 10))) : 1;
    const yTicks = logY ? logTicks(r.y0, r.y1, 5) : ticks(r.y0 / unit, r.y1 / unit, wide ? 8 : 5).map((v) => v * unit);
    const yLabels = yTicks.map((v) => format(logY ? Number((10 ** v).toPrecision(6)) : v));
    const left = Math.min(84, 12 + 6.4 * Math.max(2, ...yLabels.map((t) => t.length))), right = 8, top = 8, bottom = 22;
    const X = (v) => left + ((v - r.x0) / (r.x1 - r.x0)) * (width - left - right);
    const Y = (v) => top + ((r.y1 - v) / (r.y1 - r.y0)) * (height - top - bottom);
    this.frame = { r, left, right, width, height, top, bottom, X, Y, drawn };
    const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': this.title });
    svg.append(s('clipPath', { id: this.id }, s('rect', { x: left, y: top - 3, width: Math.max(0, width - left - right), height: height - top - bottom + 6 })));
    yTicks.forEach((v, i) => {
      svg.append(s('line', { class: 'grid', x1: left, x2: width - right, y1: Y(v), y2: Y(v) }));
      svg.append(s('text', { x: left - 6, y: Y(v) + 4, 'text-anchor': 'end' }, yLabels[i]));
    });
    const times = xKind === 'time';
    const most = Math.max(2, Math.floor((width - left) / 80));
    const xTicks = logX ? logTicks(r.x0, r.x1, most) : ticks(r.x0, r.x1, most, times);
    for (const v of xTicks) {
      const value = logX ? 10 ** v : v;
      svg.append(s('line', { class: 'axis', x1: X(v), x2: X(v), y1: height - bottom, y2: height - bottom + 4 }));
      svg.append(s('text', { x: Math.min(X(v), width - right - 8), y: height - 5, 'text-anchor': 'middle' }, times ? duration(value) : count(value)));
    }
    svg.append(s('line', { class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    const curves = s('g', { 'clip-path': `url(#${this.id})` });
    for (const d of drawn) if (d.low) curves.append(s('path', { class: 'range', d: area(d.x, d.low, d.high, X, Y), fill: d.line.color }));
    for (const d of drawn) if (d.raw) curves.append(s('path', { class: 'raw', d: path(d.x, d.raw, X, Y, r), stroke: d.line.color }));
    for (const d of drawn) {
      curves.append(s('path', { class: 'curve', d: path(d.x, d.y, X, Y, r), stroke: d.line.color, 'stroke-dasharray': d.line.dash, 'data-run': d.line.name }));
      // A curve of one point, or of points between gaps, would not be seen.
      if (finite(d.y) <= 3) for (let i = 0; i < d.y.length; i++) if (Number.isFinite(d.y[i]) && Number.isFinite(d.x[i])) curves.append(s('circle', { cx: X(d.x[i]), cy: Y(d.y[i]), r: 3, fill: d.line.color }));
    }
    svg.append(curves);
    // Values that are not finite: a cross at the edge where they happened.
    let marks = 0;
    for (const d of drawn) {
      for (let i = 0; i < d.x.length && marks < 200; i++) {
        const v = d.line.y[i];
        if (Number.isFinite(v) || !(d.x[i] >= r.x0 && d.x[i] <= r.x1)) continue;
        const x = X(d.x[i]), y = v === -Infinity ? height - bottom - 5 : top + 4;
        svg.append(s('path', { class: 'mark nonfinite', d: `M${x - 3} ${y - 3}l6 6m0-6l-6 6`, stroke: d.line.color }));
        marks++;
      }
    }
    this.cross = s('g');
    svg.append(this.cross);
    this.plot.replaceChildren(svg);
  }

  at(event) {
    const box = this.plot.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  value(px) {
    const { r, left, right, width } = this.frame;
    return r.x0 + ((px - left) / (width - left - right)) * (r.x1 - r.x0);
  }

  down(event) {
    if (event.pointerType === 'mouse' && event.button === 0 && this.frame) this.drag = { from: this.at(event).x };
  }

  up(event) {
    if (this.drag && this.frame) {
      const to = this.at(event).x, from = this.drag.from;
      this.drag = null;
      if (Math.abs(to - from) > 8) {
        this.zoom = [this.value(Math.min(from, to)), this.value(Math.max(from, to))];
        this.draw();
        return;
      }
    }
    this.drag = null;
    this.move(event);
  }

  leave() {
    if (this.cross) this.cross.replaceChildren();
    hideTooltip();
  }

  move(event) {
    if (!this.frame) return;
    const { left, right, width, height, top, bottom, X, Y, drawn } = this.frame;
    const { x } = this.at(event);
    this.cross.replaceChildren();
    if (x < left || x > width - right) { hideTooltip(); return; }
    if (this.drag) {
      const from = this.drag.from;
      this.cross.append(s('rect', { class: 'band', x: Math.min(from, x), y: top, width: Math.abs(x - from), height: height - top - bottom }));
    }
    const at = this.value(x);
    const rows = [];
    for (const d of drawn) {
      const i = nearest(d.x, at);
      if (i < 0) continue;
      if (Math.abs(X(d.x[i]) - x) > 60) continue;
      rows.push({ d, i });
    }
    if (!rows.length) { hideTooltip(); return; }
    rows.sort((a, b) => b.d.shown[b.i] - a.d.shown[a.i]);
    this.cross.append(s('line', { class: 'cross', x1: x, x2: x, y1: top, y2: height - bottom }));
    const { format = short } = this.options;
    const table = h('table');
    for (const { d, i } of rows.slice(0, 16)) {
      if (Number.isFinite(d.y[i])) this.cross.append(s('circle', { cx: X(d.x[i]), cy: Y(d.y[i]), r: 3.5, fill: d.line.color }));
      const where = this.options.xKind === 'time' ? duration(d.line.x[i]) : count(d.line.x[i]);
      table.append(h('tr', {}, h('td', {}, h('span', { class: 'dot', style: { background: d.line.color } })), h('td', { class: 'name' }, d.line.name),
        h('td', {}, format(d.shown[i])), h('td', { class: 'dim' }, d.raw ? format(d.line.y[i]) : ''), h('td', { class: 'dim' }, where)));
    }
    if (rows.length > 16) table.append(h('tr', {}, h('td', { colspan: 5, class: 'dim' }, `and ${rows.length - 16} more`)));
    showTooltip(event.clientX, event.clientY, table);
  }
}

Chart.observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = entry.target.chart;
    if (!chart) continue;
    chart.visible = entry.isIntersecting;
    if (chart.visible && chart.stale) chart.draw();
  }
}, { rootMargin: '300px' });

addEventListener('resize', () => {
  document.querySelectorAll('.card').forEach((card) => { if (card.chart && card.chart.visible) card.chart.draw(); else if (card.chart) card.chart.stale = true; });
});

const finite = (values) => values.reduce((n, v) => n + (Number.isFinite(v) ? 1 : 0), 0);

function path(xs, ys, X, Y, r) {
  let text = '', pen = false;
  const low = r.y0 - (r.y1 - r.y0) * 20, high = r.y1 + (r.y1 - r.y0) * 20;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(xs[i]) || !Number.isFinite(ys[i])) { pen = false; continue; }
    text += `${pen ? 'L' : 'M'}${X(xs[i]).toFixed(1)} ${Y(Math.min(high, Math.max(low, ys[i]))).toFixed(1)}`;
    pen = true;
  }
  return text;
}

/** The area between two curves. */
function area(xs, low, high, X, Y) {
  const kept = xs.map((_, i) => i).filter((i) => Number.isFinite(xs[i]) && Number.isFinite(low[i]) && Number.isFinite(high[i]));
  if (!kept.length) return '';
  const points = [...kept.map((i) => [xs[i], high[i]]), ...kept.reverse().map((i) => [xs[i], low[i]])];
  return `M${points.map(([x, y]) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join('L')}Z`;
}

/** Rows of run, x and value. A name is quoted where it must be. */
export function csv(lines, x) {
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = lines.flatMap((line) => line.x.map((at, i) => `${cell(line.name)},${at},${line.y[i]}`));
  return [`run,${x},value`, ...rows, ''].join('\n');
}

/** A picture as a file of its own: with the page's styles, a background and the names of its curves. */
function standalone(svg, lines) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((root) => [root, ...root.querySelectorAll('*')]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of ['fill', 'stroke', 'stroke-width', 'opacity', 'font-size', 'font-family']) to[i].style.setProperty(name, style.getPropertyValue(name));
  });
  const [, , width, height] = svg.getAttribute('viewBox').split(' ').map(Number);
  const style = getComputedStyle(document.body);
  copy.setAttribute('xmlns', SVG);
  copy.setAttribute('width', width);
  copy.setAttribute('height', height + 16 * lines.length);
  copy.setAttribute('viewBox', `0 0 ${width} ${height + 16 * lines.length}`);
  copy.prepend(s('rect', { width: '100%', height: '100%', fill: style.backgroundColor }));
  lines.forEach((line, i) => copy.append(s('text', { x: 24, y: height + 16 * i + 11, 'font-size': 12, 'font-family': 'sans-serif', fill: style.color }, line.name),
    s('rect', { x: 8, y: height + 16 * i + 2, width: 10, height: 10, fill: line.color })));
  return new XMLSerializer().serializeToString(copy);
}

/** A picture as PNG, with twice as many pixels as it has on the page. */
function pixels(picture, done) {
  const image = new Image();
  image.onload = () => {
    const canvas = h('canvas', { width: image.width * 2, height: image.height * 2 });
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(done, 'image/png');
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`;
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** The index of the value nearest to `at`; values that are not finite are left out. */
function nearest(xs, at) {
  let best = -1, distance = Infinity;
  for (let i = 0; i < xs.length; i++) {
    const d = Math.abs(xs[i] - at);
    if (d <= distance) { distance = d; best = i; }
  }
  return best;
}
