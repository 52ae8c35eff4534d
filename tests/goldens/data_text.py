"""Reference values for the tokenizers of crates/data: GPT-2's splitting, its merging, and a trainer.

    python tests/goldens/data_text.py       # writes data_text.json beside this file; needs only Python

Python's `re` has no classes of general categories. Each character is replaced by a stand-in of its kind (one letter, digit, tab or sign), GPT-2's
pattern is run on the stand-ins, and the spans are cut from the text. Merging follows the definition: again and again, all occurrences of the pair that
comes first. Training counts all pairs anew for every merge.
"""

import json
import pathlib
import re
import unicodedata
from collections import Counter

WHITE_SPACE = set(map(chr, [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]))
PATTERN = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def stand_in(c):
    if c in WHITE_SPACE:
        return " " if c == " " else "\t"
    if c.isascii():
        return c if c.isprintable() else "#"
    return {"L": "x", "N": "0"}.get(unicodedata.category(c)[0], "#")


def split(text):
    kinds = "".join(map(stand_in, text))
    return [text[m.start() : m.end()] for m in PATTERN.finditer(kinds)]


def letters():
    visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in visible:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


LETTERS = letters()


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def train(text, vocab_size):
    vocab = {LETTERS[b]: b for b in range(256)}
    words = Counter(split(text))
    parts = {w: [LETTERS[b] for b in w.encode()] for w in words}
    merges = []
    while len(vocab) < vocab_size:
        counts = Counter()
        for word, n in words.items():
            for pair in zip(parts[word], parts[word][1:]):
                counts[pair] += n
        ranked = sorted(counts.items(), key=lambda kv: (-kv[1], vocab[kv[0][0]], vocab[kv[0][1]]))
        if not ranked or ranked[0][1] < 2:
            break
        pair = ranked[0][0]
        vocab.setdefault(pair[0] + pair[1], len(vocab))
        merges.append(pair)
        parts = {w: merge(p, pair) for w, p in parts.items()}
    return vocab, merges


def encode(text, vocab, merges):
    ranks = {pair: i for i, pair in enumerate(merges)}
    out = []
    for word in split(text):
        parts = [LETTERS[b] for b in word.encode()]
        while True:
            known = [(ranks[p], p) for p in zip(parts, parts[1:]) if p in ranks]
            if not known:
                break
            parts = merge(parts, min(known)[1])
        out += [vocab[p] for p in parts]
    return out


TEXTS = [
    "",
    " ",
    "   ",
    "Hello world",
    "Hello   world",
    "  leading and trailing  ",
    "it's they're we've I'm you'll he'd don't",
    "IT'S 'sample' 's' ''s '  's",
    "tabs\tand\nnew\n\nlines\r\n  end",
    "\n\n  x",
    "numbers 123 4.56 7e-8 ½ Ⅷ ٣٤ 1st x2y",
    "punctuation!? (well...) -- $5 #tag @me a_b",
    "Grüße, naïve café — “quotes” …",
    "Привет мир, как дела?",
    "日本語のテキスト 東京2020",
    "हिन्दी में लिखा हुआ",
    "emoji 😀👍🏽 done 👩‍👩‍👧",
    "e\u0301 combining, zero\u200bwidth, nbsp\u00a0\u00a0here",
    "\u3000\u3000wide\u2003spaces \u2028 line",
    "\x1c\x1d control \x00 bytes \x7f",
    "a" * 50 + " " + "ab" * 30,
]

CORPUS = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the "
    "epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of Darkness. "
    "Aaaa aaaaa aaaaaa. Grüße, grüßen; 123 1234 12345!"
)

vocab, merges = train(CORPUS, 330)
result = {
    "splits": [{"text": t, "words": split(t)} for t in TEXTS],
    "corpus": CORPUS,
    "vocab_size": 330,
    "vocab": vocab,
    "merges": [list(m) for m in merges],
    "encoded": [{"text": t, "tokens": encode(t, vocab, merges)} for t in [*TEXTS, CORPUS]],
}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(result, ensure_ascii=True) + "\n")
print(f"{len(vocab)} tokens, {len(merges)} merges: {path.stat().st_size} bytes")
