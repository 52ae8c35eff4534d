// Markdown as elements: what people write in logged texts and notes. Nothing becomes markup but what is built here.

import { h } from './chart.js';

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|__(.+?)__|\*(.+?)\*|\b_(.+?)_\b|!?\[([^\]]*)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>)]+)/;

/** Code, bold, italic and links of a line. */
function inline(text) {
  const parts = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    parts.push(rest.slice(0, found.index));
    const [all, , code, strong, strong2, soft, soft2, label, link, address] = found;
    if (code !== undefined) parts.push(h('code', {}, code.trim()));
    else if (strong || strong2) parts.push(h('strong', {}, inline(strong || strong2)));
    else if (soft || soft2) parts.push(h('em', {}, inline(soft || soft2)));
    else parts.push(h('a', { href: link || address, rel: 'noreferrer noopener', target: '_blank' }, label || link || address));
    rest = rest.slice(found.index + all.length);
  }
  parts.push(rest);
  return parts.filter((part) => part !== '');
}

const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
const isRule = (line) => line !== undefined && /^[\s|:-]+$/.test(line) && line.includes('-') && line.includes('|');

/** The elements of a text. */
export function markdown(text) {
  const lines = text.replace(/\r\n?/g, '\n').split('\n'), found = [];
  let i = 0;
  const while_ = (test) => { const from = i; while (i < lines.length && test(lines[i])) i++; return lines.slice(from, i); };
  while (i < lines.length) {
    const line = lines[i];
    const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (!line.trim()) i++;
    else if (/^\s*```/.test(line)) {
      i++;
      const code = while_((l) => !/^\s*```/.test(l));
      i++;
      found.push(h('pre', {}, code.join('\n')));
    } else if (heading) {
      found.push(h(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2])));
      i++;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      found.push(h('hr'));
      i++;
    } else if (line.includes('|') && isRule(lines[i + 1])) {
      const head = cells(line);
      i += 2;
      const rows = while_((l) => l.includes('|') && l.trim());
      found.push(h('table', { class: 'data' }, h('thead', {}, h('tr', {}, head.map((cell) => h('th', {}, inline(cell))))),
        h('tbody', {}, rows.map((row) => h('tr', {}, cells(row).map((cell) => h('td', {}, inline(cell))))))));
    } else if (/^\s*>/.test(line)) {
      found.push(h('blockquote', {}, markdown(while_((l) => /^\s*>/.test(l)).map((l) => l.replace(/^\s*> ?/, '')).join('\n'))));
    } else if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) {
      const numbered = /^\s*\d/.test(line);
      const items = while_((l) => l.trim() && (/^\s*([-*+]|\d+[.)])\s+/.test(l) || /^\s+/.test(l)));
      const joined = items.reduce((all, l) => { if (/^\s*([-*+]|\d+[.)])\s+/.test(l)) all.push(l.replace(/^\s*([-*+]|\d+[.)])\s+/, '')); else all[all.length - 1] += ` ${l.trim()}`; return all; }, []);
      found.push(h(numbered ? 'ol' : 'ul', {}, joined.map((item) => h('li', {}, inline(item)))));
    } else if (/^ {4}|^\t/.test(line)) {
      found.push(h('pre', {}, while_((l) => /^ {4}|^\t/.test(l) || !l.trim()).map((l) => l.replace(/^ {4}|^\t/, '')).join('\n').trimEnd()));
    } else {
      const paragraph = while_((l) => l.trim() && !/^\s*(```|#{1,6}\s|>|[-*+]\s|\d+[.)]\s)/.test(l) && !(l.includes('|') && isRule(lines[i + 1])));
      // A line that looks like something else and is not.
      if (!paragraph.length) paragraph.push(lines[i++]);
      found.push(h('p', {}, inline(paragraph.join('\n'))));
    }
  }
  return found;
}
