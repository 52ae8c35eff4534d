//! Modifications that autograd ignores.
//!
//! A storage counts every change of its memory, and cached copies compare that count. Backward compares a count without
//! the changes made through [`Tensor::data`]. Such changes are rare, so a table by storage holds their number and is
//! consulted only once it has an entry.

use super::{Extra, Saved, record, recording};
use crate::Tensor;
use rushlight_core::smallvec::smallvec;
use rushlight_core::sync::lock;
use rushlight_core::{Result, Storage};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

#[derive(Default)]
struct Uncounted {
    /// Changes by a storage's address. The weak reference detects another storage at the same address.
    changes: HashMap<usize, (Weak<Storage>, u32)>,
    /// The number of entries at which entries of dead storages are removed.
    limit: usize,
}

impl Uncounted {
    fn add(&mut self, storage: &Arc<Storage>) {
        if self.changes.len() >= self.limit {
            self.changes.retain(|_, (storage, _)| storage.strong_count() > 0);
            self.limit = 2 * self.changes.len() + 16;
        }
        let entry = self.changes.entry(Arc::as_ptr(storage) as usize).or_insert_with(|| (Weak::new(), 0));
        if entry.0.strong_count() == 0 {
            *entry = (Arc::downgrade(storage), 0);
        }
        entry.1 += 1;
    }

    fn of(&self, storage: &Arc<Storage>) -> u32 {
        match self.changes.get(&(Arc::as_ptr(storage) as usize)) {
            Some((known, count)) if known.strong_count() > 0 => *count,
            _ => 0,
        }
    }
}

static UNCOUNTED: LazyLock<Mutex<Uncounted>> = LazyLock::new(Default::default);
static ANY: AtomicBool = AtomicBool::new(false);

fn uncounted() -> MutexGuard<'static, Uncounted> {
    lock(&UNCOUNTED)
}

impl Tensor {
    /// The same elements outside of any graph, as [`Tensor::detach`] gives them; but backward does not notice changes
    /// made through this tensor or its views, and computes with the new values. PyTorch's `.data`.
    pub fn data(&self) -> Tensor {
        let data = self.alias();
        let uncounted_before = self.uncounted_changes();
        data.meta().extra = Some(Box::new(Extra { uncounted: true, uncounted_before, ..Extra::default() }));
        data
    }

    /// Counts a change of this tensor's memory.
    pub(crate) fn count_change(&self) {
        self.0.storage.bump_version();
        let meta = self.meta();
        let Some(extra) = &meta.extra else { return };
        let is_uncounted = extra.uncounted
            || extra.base.as_ref().is_some_and(|(base, _)| base.meta().extra.as_ref().is_some_and(|e| e.uncounted));
        if is_uncounted {
            uncounted().add(&self.0.storage);
            ANY.store(true, Relaxed);
        }
    }

    /// The version that backward compares: in-place changes that autograd must notice.
    pub(crate) fn graph_version(&self) -> u32 {
        self.version().wrapping_sub(self.uncounted_changes())
    }

    fn uncounted_changes(&self) -> u32 {
        if ANY.load(Relaxed) { uncounted().of(&self.0.storage) } else { 0 }
    }

    /// This tensor, as an input of a composed op that PyTorch records as one op, `name`: backward refuses to go on if
    /// this tensor or one of `others` was changed in place since, although the parts of the op do not need them.
    pub fn watched(&self, name: &'static str, others: &[&Tensor]) -> Result<Tensor> {
        if !recording(&[self]) {
            return Ok(self.clone());
        }
        let out = self.alias();
        let saved: Vec<Saved> = [self].iter().chain(others).map(|t| Saved::input(t)).collect();
        record(name, &[self], &out, move |ctx, dy| {
            saved.iter().try_for_each(|saved| ctx.get(saved).map(drop))?;
            Ok(smallvec![Some(dy.clone())])
        })?;
        Ok(out)
    }

    /// The number of in-place changes as autograd counts them: those through [`Tensor::data`] are counted apart, from
    /// zero. PyTorch's `_version`.
    pub fn counted_version(&self) -> u32 {
        let own = self.meta().extra.as_ref().filter(|extra| extra.uncounted).map(|extra| extra.uncounted_before);
        match own {
            Some(before) => self.uncounted_changes().wrapping_sub(before),
            None => self.graph_version(),
        }
    }
}
