//! GPT-2's way to cut a text into words before pairs are merged.

use regex_syntax::hir::{Class, HirKind};
use std::sync::LazyLock;

/// Code points of one general category, as sorted ranges.
struct Category(Vec<(u32, u32)>);

impl Category {
    fn named(pattern: &str) -> Self {
        match regex_syntax::parse(pattern).map(|hir| hir.into_kind()) {
            Ok(HirKind::Class(Class::Unicode(class))) => {
                Self(class.ranges().iter().map(|r| (r.start() as u32, r.end() as u32)).collect())
            }
            other => unreachable!("{pattern} names a class of characters, not {other:?}"),
        }
    }

    fn contains(&self, c: char) -> bool {
        let c = c as u32;
        let at = self.0.partition_point(|&(_, last)| last < c);
        self.0.get(at).is_some_and(|&(first, _)| first <= c)
    }
}

static LETTERS: LazyLock<Category> = LazyLock::new(|| Category::named(r"\p{L}"));
static NUMBERS: LazyLock<Category> = LazyLock::new(|| Category::named(r"\p{N}"));

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Letter,
    Number,
    Space,
    Other,
}

fn kind(c: char) -> Kind {
    match c {
        'a'..='z' | 'A'..='Z' => Kind::Letter,
        '0'..='9' => Kind::Number,
        c if c.is_whitespace() => Kind::Space,
        c if c.is_ascii() => Kind::Other,
        c if LETTERS.contains(c) => Kind::Letter,
        c if NUMBERS.contains(c) => Kind::Number,
        _ => Kind::Other,
    }
}

/// English endings that are words of their own after an apostrophe.
const ENDINGS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

/// Length in bytes of the run of characters of one kind at the front.
fn run(text: &str, wanted: Kind) -> usize {
    text.char_indices().find(|&(_, c)| kind(c) != wanted).map_or(text.len(), |(at, _)| at)
}

/// Length in bytes of the first word; the text is not empty.
fn first_word(text: &str) -> usize {
    if let Some(ending) = ENDINGS.iter().find(|e| text.starts_with(**e)) {
        return ending.len();
    }
    // One space belongs to the word after it.
    let lead = usize::from(text.starts_with(' '));
    if let Some(next) = text[lead..].chars().next()
        && kind(next) != Kind::Space
    {
        return lead + run(&text[lead..], kind(next));
    }
    let spaces = run(text, Kind::Space);
    // Of several spaces before a word the last is left for it.
    match text[..spaces].char_indices().next_back() {
        Some((last, _)) if spaces < text.len() && last > 0 => last,
        _ => spaces,
    }
}

/// The words GPT-2's tokenizer merges pairs in, which together are the text.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::text::split_words;
/// let words: Vec<&str> = split_words("Hello  world, it's 2024!").collect();
/// assert_eq!(words, ["Hello", " ", " world", ",", " it", "'s", " 2024", "!"]);
/// ```
pub fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (word, after) = rest.split_at(first_word(rest));
        rest = after;
        Some(word)
    })
}
