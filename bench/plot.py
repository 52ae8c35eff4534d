#!/usr/bin/env python3
"""Draws the ratios of bench/RESULTS.md as bars on a logarithmic axis, into bench/ratios.svg.

    python3 bench/plot.py

Rows are drawn if their last or only `ratio` column is a number; rows about memory are not."""

import math
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent
LOW, HIGH, LABELS, BARS, STEP = 0.5, 32.0, 230, 520, 15


def rows(text):
    """(section, case, ratio) of every table with a column named ratio."""
    section, column = "", None
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            column = None
        elif "ratio" in cells:
            column = cells.index("ratio")
        elif column is not None and column < len(cells) and re.fullmatch(r"[0-9.]+", cells[column]):
            if "memory" not in cells[0]:
                yield section, re.sub(r" \(.*", "", cells[0]), float(cells[column])


def place(ratio):
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LABELS + share * BARS


def draw(found):
    y, parts, last = 34, [], None
    for section, case, ratio in found:
        if section != last:
            y += 10
            parts.append(f'<text x="{LABELS}" y="{y}" class="section">{section}</text>')
            y, last = y + STEP, section
        left, right = sorted((place(1.0), place(ratio)))
        kind = "ahead" if ratio >= 1.0 else "behind"
        parts.append(f'<text x="{LABELS - 6}" y="{y}" class="case">{case}</text>')
        parts.append(f'<rect x="{left:.1f}" y="{y - 9}" width="{max(right - left, 1):.1f}" height="10" class="{kind}"/>')
        parts.append(f'<text x="{right + 4:.1f}" y="{y}" class="value">{ratio:g}</text>')
        y += STEP
    lines = []
    for tick in (0.5, 1, 2, 4, 8, 16, 32):
        x = place(tick)
        lines.append(f'<line x1="{x:.1f}" y1="26" x2="{x:.1f}" y2="{y}" class="{"one" if tick == 1 else "tick"}"/>')
        lines.append(f'<text x="{x:.1f}" y="20" class="axis">{tick:g}×</text>')
    style = (
        "text{font:11px sans-serif;fill:#444}.case{text-anchor:end}.axis{text-anchor:middle}.section{font-weight:bold}"
        ".value{font-size:10px}.tick{stroke:#ddd}.one{stroke:#555}.ahead{fill:#2a9d8f}.behind{fill:#e76f51}"
    )
    width = LABELS + BARS + 60
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 8}" viewBox="0 0 {width} {y + 8}">'
    return "\n".join([head, f"<style>{style}</style>", '<rect width="100%" height="100%" fill="white"/>', *lines, *parts, "</svg>", ""])


if __name__ == "__main__":
    found = list(rows((FOLDER / "RESULTS.md").read_text()))
    (FOLDER / "ratios.svg").write_text(draw(found))
    print(f"{len(found)} ratios drawn")
