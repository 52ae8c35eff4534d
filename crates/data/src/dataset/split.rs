//! Random parts of a dataset.

use super::{Dataset, Subset};
use crate::rng::{draw_seed, randperm};
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Generator, Result};
use std::sync::Arc;

/// The length of a part: a number of samples, or a fraction of all.
pub trait SplitLength: Copy {
    /// The parts' numbers of samples, out of `total`.
    fn resolve(parts: &[Self], total: usize) -> Result<Vec<usize>>;
}

impl SplitLength for usize {
    fn resolve(parts: &[usize], total: usize) -> Result<Vec<usize>> {
        if parts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(total) {
            return Err(Error::value(format!(
                "random_split: the lengths {parts:?} must add up to the dataset's length {total}"
            )));
        }
        Ok(parts.to_vec())
    }
}

impl SplitLength for f64 {
    /// Fractions that add up to one. Each part gets the whole number below its share; the remaining samples go one by
    /// one to the first parts.
    fn resolve(parts: &[f64], total: usize) -> Result<Vec<usize>> {
        if let Some(bad) = parts.iter().find(|f| !(0.0..=1.0).contains(*f)) {
            return Err(Error::value(format!("random_split: a fraction must be between 0 and 1, got {bad}")));
        }
        let sum: f64 = parts.iter().sum();
        if (sum - 1.0).abs() > 1e-9 {
            return Err(Error::value(format!("random_split: the fractions {parts:?} must add up to 1, not {sum}")));
        }
        let mut lengths: Vec<usize> = parts.iter().map(|f| ((total as f64 * f).floor() as usize).min(total)).collect();
        let rest = total.saturating_sub(lengths.iter().sum());
        let count = lengths.len();
        for i in 0..rest {
            lengths[i % count] += 1;
        }
        Ok(lengths)
    }
}

/// A dataset cut into parts at random, by numbers of samples or by fractions. `None` draws from the process-wide
/// generator.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Generator; pub use rushlight_data as data; }
/// use rushlight::Generator;
/// use rushlight::data::{Dataset, VecDataset, random_split};
/// let data = VecDataset::new((0..10i64).collect());
/// let [train, valid] = random_split(data, [0.75, 0.25], Some(&Generator::new(0)))?;
/// assert_eq!((train.len(), valid.len()), (8, 2));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn random_split<'g, D: Dataset, L: SplitLength, const N: usize>(
    dataset: D,
    lengths: [L; N],
    generator: impl Into<Option<&'g Generator>>,
) -> Result<[Subset<Arc<D>>; N]> {
    let lengths = L::resolve(&lengths, dataset.len())?;
    let order = randperm(draw_seed(generator.into().unwrap_or(default_generator())), dataset.len())?;
    let dataset = Arc::new(dataset);
    let mut rest = &order[..];
    let mut parts = Vec::with_capacity(N);
    for length in lengths {
        let (part, after) = rest.split_at_checked(length).ok_or_else(|| {
            Error::value(format!("random_split: the parts need more than the dataset's {} samples", order.len()))
        })?;
        parts.push(Subset::new(dataset.clone(), part)?);
        rest = after;
    }
    parts.try_into().map_err(|_| Error::value("random_split: needs one length per part"))
}
