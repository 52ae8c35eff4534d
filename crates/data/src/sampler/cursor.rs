//! A sampler and a place in it.

use super::{Indices, Sampler};
use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Stateful, Value};

/// A sampler that remembers how far it has been read. After an epoch's last item comes `None`, then the next epoch.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_data as data; }
/// use rushlight::data::sampler::{RandomSampler, Sampler};
/// use rushlight::state::Stateful;
/// let mut run = RandomSampler::new(10).seed(3).cursor();
/// run.by_ref().take(4).for_each(drop);
/// let saved = run.state()?;
/// let rest: Vec<usize> = run.collect::<Result<_, _>>()?;
/// let mut again = RandomSampler::new(10).cursor();
/// again.load_state(&saved)?;
/// assert_eq!(again.collect::<Result<Vec<_>, _>>()?, rest);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Cursor<S: Sampler> {
    sampler: S,
    epoch: u64,
    position: usize,
    open: Option<Indices<S::Item>>,
}

impl<S: Sampler> Cursor<S> {
    pub(super) fn new(sampler: S) -> Self {
        Self { sampler, epoch: 0, position: 0, open: None }
    }

    /// Goes to the beginning of an epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        (self.epoch, self.position, self.open) = (epoch, 0, None);
    }

    /// The epoch being read.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many items of the epoch have been read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The sampler.
    pub fn sampler(&self) -> &S {
        &self.sampler
    }
}

impl<S: Sampler> Iterator for Cursor<S> {
    type Item = Result<S::Item>;

    fn next(&mut self) -> Option<Result<S::Item>> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => match self.sampler.iter(self.epoch) {
                Ok(mut fresh) => {
                    fresh.by_ref().take(self.position).for_each(drop);
                    fresh
                }
                Err(e) => return Some(Err(e)),
            },
        };
        match open.next() {
            Some(item) => {
                self.position += 1;
                self.open = Some(open);
                Some(Ok(item))
            }
            None => {
                self.set_epoch(self.epoch.wrapping_add(1));
                None
            }
        }
    }
}

impl<S: Sampler> Stateful for Cursor<S> {
    fn state(&self) -> Result<Value> {
        let mut state = Dict::new();
        state.insert("epoch".into(), Value::Int(self.epoch as i64));
        state.insert("position".into(), self.position.into());
        state.insert("seed".into(), self.sampler.order_seed().map(seed_to_value).unwrap_or(Value::None));
        Ok(state.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let (epoch, position) = (state.get("epoch")?.as_usize()?, state.get("position")?.as_usize()?);
        if position > self.sampler.len() {
            return Err(Error::value(format!(
                "sampler: the saved position {position} is beyond this sampler's {} items an epoch",
                self.sampler.len()
            )));
        }
        if let Some(seed) = seed_from_value(state.get("seed")?)? {
            self.sampler.set_order_seed(seed);
        }
        (self.epoch, self.position, self.open) = (epoch as u64, position, None);
        Ok(())
    }
}

/// A seed keeps its 64 bits; state has signed integers.
pub(crate) fn seed_to_value(seed: u64) -> Value {
    Value::Int(seed as i64)
}

pub(crate) fn seed_from_value(value: &Value) -> Result<Option<u64>> {
    match value {
        Value::None => Ok(None),
        other => Ok(Some(other.as_int()? as u64)),
    }
}
