//! GPT-2's two files: `vocab.json` and `merges.txt`.

use super::Bpe;
use super::alphabet::Alphabet;
use crate::download::failed;
use rushlight_core::{Error, Result};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// GPT-2's files have a mebibyte each.
const MAX_BYTES: u64 = 256 << 20;

fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| failed("open", path, &e))?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| failed("read", path, &e))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::value(format!("Bpe: {} has more than {MAX_BYTES} bytes", path.display())));
    }
    Ok(text)
}

impl Bpe {
    /// Reads `vocab.json` and `merges.txt`.
    pub fn from_files(vocab: impl AsRef<Path>, merges: impl AsRef<Path>) -> Result<Bpe> {
        let (vocab, merges) = (vocab.as_ref(), merges.as_ref());
        let within = |e: Error| e.within(&format!("{} and {}", vocab.display(), merges.display()));
        Bpe::parse(&read_text(vocab)?, &read_text(merges)?).map_err(within)
    }

    /// A tokenizer from the contents of the two files.
    pub fn parse(vocab_json: &str, merges_txt: &str) -> Result<Bpe> {
        let entries: Map<String, Value> = serde_json::from_str(vocab_json)
            .map_err(|e| Error::value(format!("Bpe: the vocabulary is not a JSON object: {e}")))?;
        let mut vocab = Vec::with_capacity(entries.len());
        for (name, token) in entries {
            let token = token.as_u64().and_then(|t| u32::try_from(t).ok()).ok_or_else(|| {
                Error::value(format!("Bpe: the vocabulary has {token} for '{name}' instead of a token's number"))
            })?;
            vocab.push((name, token));
        }
        let mut merges = Vec::new();
        for (number, line) in merges_txt.lines().enumerate() {
            if line.is_empty() || (number == 0 && line.starts_with("#version")) {
                continue;
            }
            match line.split_once(' ') {
                Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                    merges.push((left, right));
                }
                _ => {
                    return Err(Error::value(format!(
                        "Bpe: line {} of the merges is not two tokens with a space between: {line:?}",
                        number + 1
                    )));
                }
            }
        }
        Bpe::new(vocab, merges)
    }

    /// Writes `vocab.json` and `merges.txt`, which GPT-2's tokenizers elsewhere read.
    pub fn save(&self, vocab: impl AsRef<Path>, merges: impl AsRef<Path>) -> Result<()> {
        let mut named: Vec<(&String, u32)> = self.names.iter().map(|(name, &token)| (name, token)).collect();
        named.sort_by_key(|&(_, token)| token);
        let entries: Map<String, Value> = named.into_iter().map(|(n, t)| (n.clone(), Value::from(t))).collect();
        let alphabet = Alphabet::new();
        let name = |token: &u32| self.bytes.get(token).map(|b| alphabet.name(b)).unwrap_or_default();
        let mut text = String::from("#version: 0.2\n");
        for (left, right) in self.merges.order() {
            text += &format!("{} {}\n", name(left), name(right));
        }
        let (vocab, merges) = (vocab.as_ref(), merges.as_ref());
        fs::write(vocab, Value::Object(entries).to_string()).map_err(|e| failed("write", vocab, &e))?;
        fs::write(merges, text).map_err(|e| failed("write", merges, &e))
    }
}
