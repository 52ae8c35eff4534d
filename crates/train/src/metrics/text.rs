//! Text metrics: perplexity and BLEU.

use super::sums::{Sums, metric};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Tensor, stack, where_};
use std::collections::HashMap;

/// The exponential of the mean negative log-likelihood of tokens.
#[derive(Clone, Debug, Default)]
pub struct Perplexity {
    ignore_index: Option<i64>,
    sums: Sums,
}

impl Perplexity {
    /// Perplexity of all tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores tokens with this index, such as padding.
    pub fn ignore_index(mut self, token: i64) -> Self {
        self.ignore_index = Some(token);
        self
    }

    /// Adds a batch: logits of shape `[N, T, V]` and tokens of shape `[N, T]`.
    pub fn update(&self, logits: &Tensor, target: &Tensor) -> Result<()> {
        if logits.rank() != target.rank() + 1 || !logits.shape().starts_with(target.shape()) {
            return Err(Error::shape(format!(
                "Perplexity: logits of shape {:?} do not fit tokens of shape {:?}; the vocabulary comes last",
                logits.shape(),
                target.shape()
            )));
        }
        no_grad(|| {
            let likelihood = logits.to_dtype(DType::F64)?.log_softmax(-1)?;
            let (known, counted) = match self.ignore_index {
                Some(token) => {
                    let ignored = target.eq(token as f64)?;
                    (
                        where_(&ignored, 0.0, target)?.to_dtype(DType::I64)?,
                        target.ne(token as f64)?.to_dtype(DType::F64)?,
                    )
                }
                None => (target.clone(), Tensor::ones_with(target.shape(), (DType::F64, target.device()))?),
            };
            let own = likelihood.gather(-1, &known.unsqueeze(-1)?)?.reshape(target.shape())?;
            self.sums.add(&stack(&[&own.mul(&counted)?.sum(..)?.neg()?, &counted.sum(..)?], 0)?)
        })
    }
}

metric!(Perplexity, sums, |this, ranks| {
    let sums = this.sums.read(2, ranks)?;
    Ok((sums[0] / sums[1]).exp())
});

/// BLEU: the fraction of a translation's n-grams that occur in its references, over a whole corpus. Texts are split at
/// white space.
#[derive(Clone, Debug)]
pub struct BleuScore {
    n_gram: usize,
    smooth: bool,
    /// Lengths of translations and references, then for each n the matching n-grams and all n-grams.
    sums: Sums,
}

impl Default for BleuScore {
    fn default() -> Self {
        Self::new()
    }
}

impl BleuScore {
    /// With n-grams of up to four words.
    pub fn new() -> Self {
        Self { n_gram: 4, smooth: false, sums: Sums::default() }
    }

    /// The longest n-grams.
    pub fn n_gram(mut self, n_gram: usize) -> Self {
        self.n_gram = n_gram.max(1);
        self
    }

    /// Adds one to the counts of n-grams of two words and longer, as Lin and Och do.
    pub fn smooth(mut self, smooth: bool) -> Self {
        self.smooth = smooth;
        self
    }

    /// Adds translations, each with its references.
    pub fn update<T: AsRef<str>, R: AsRef<str>>(&self, translations: &[T], references: &[Vec<R>]) -> Result<()> {
        if translations.len() != references.len() {
            return Err(Error::value(format!(
                "BleuScore: {} translations, references for {}",
                translations.len(),
                references.len()
            )));
        }
        let mut sums = vec![0.0; 2 + 2 * self.n_gram];
        for (translation, references) in translations.iter().zip(references) {
            let words: Vec<&str> = translation.as_ref().split_whitespace().collect();
            let others: Vec<Vec<&str>> = references.iter().map(|r| r.as_ref().split_whitespace().collect()).collect();
            // The reference whose length is nearest counts, the first on a tie.
            let nearest = others.iter().map(Vec::len).min_by_key(|len| len.abs_diff(words.len()));
            let Some(nearest) = nearest else {
                return Err(Error::value("BleuScore: a translation has no reference"));
            };
            sums[0] += words.len() as f64;
            sums[1] += nearest as f64;
            for n in 1..=self.n_gram {
                let mut allowed: HashMap<&[&str], usize> = HashMap::new();
                for reference in &others {
                    for (gram, count) in grams(reference, n) {
                        let most = allowed.entry(gram).or_default();
                        *most = count.max(*most);
                    }
                }
                for (gram, count) in grams(&words, n) {
                    sums[2 * n] += count.min(allowed.get(gram).copied().unwrap_or(0)) as f64;
                    sums[2 * n + 1] += count as f64;
                }
            }
        }
        self.sums.add(&Tensor::from_slice(&sums, [sums.len()])?)
    }
}

/// The n-grams of a text and their counts.
fn grams<'a, 'b>(words: &'a [&'b str], n: usize) -> HashMap<&'a [&'b str], usize> {
    let mut counts = HashMap::new();
    for gram in words.windows(n) {
        *counts.entry(gram).or_default() += 1;
    }
    counts
}

metric!(BleuScore, sums, |this, ranks| {
    let sums = this.sums.read(2 + 2 * this.n_gram, ranks)?;
    let (length, reference) = (sums[0], sums[1]);
    let mut logarithms = 0.0;
    for (n, pair) in sums[2..].chunks_exact(2).enumerate() {
        let more = if this.smooth && n > 0 { 1.0 } else { 0.0 };
        if pair[0] == 0.0 {
            return Ok(0.0);
        }
        logarithms += ((pair[0] + more) / (pair[1] + more)).ln();
    }
    let brevity = if length > reference { 1.0 } else { (1.0 - reference / length).exp() };
    Ok(brevity * (logarithms / this.n_gram as f64).exp())
});
