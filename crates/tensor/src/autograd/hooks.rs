//! Gradient hooks.

use super::node::{Hook, Node};
use crate::Tensor;
use crate::tensor::Inner;
use rushlight_core::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The number of a new hook.
pub(super) fn next_id() -> u64 {
    NEXT.fetch_add(1, Relaxed)
}

/// Removes a hook on request. Dropping the handle leaves the hook in place.
pub struct HookHandle {
    pub(super) id: u64,
    pub(super) tensor: Weak<Inner>,
    pub(super) node: Weak<Node>,
}

impl HookHandle {
    /// Removes the hook.
    pub fn remove(self) {
        if let Some(node) = self.node.upgrade() {
            // Dropped after the lock is released: a destructor may be the user's code.
            let mut removed: Vec<Hook> = Vec::new();
            let mut hooks = rushlight_core::sync::lock(&node.hooks);
            hooks.outputs.retain(|(id, _, hook)| {
                let keep = *id != self.id;
                if !keep {
                    removed.push(hook.clone());
                }
                keep
            });
            let own = hooks.own.as_ref().map(|own| own.without(self.id));
            let old = own.map(|own| std::mem::replace(&mut hooks.own, own));
            drop(hooks);
            drop((removed, old));
        }
        if let Some(inner) = self.tensor.upgrade() {
            let tensor = Tensor(inner);
            let mut meta = tensor.meta();
            meta.extra().hooks.retain(|(id, _)| *id != self.id);
            meta.extra().post_hooks.retain(|(id, _)| *id != self.id);
        }
    }
}

impl Tensor {
    /// Calls `hook` with this tensor's whole gradient during backward; a returned tensor replaces the
    /// gradient.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([1.0f32])?.requires_grad_(true)?;
    /// x.register_hook(|g| Ok(Some(g.mul(10.0)?)))?;
    /// x.mul(2.0)?.sum(..)?.backward()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [20.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        if !self.requires_grad() {
            return Err(Error::autograd(
                "register_hook: cannot register a hook on a tensor that doesn't require gradient",
            ));
        }
        self.refresh_view();
        let id = NEXT.fetch_add(1, Relaxed);
        let mut meta = self.meta();
        let node = match &meta.node {
            Some(node) => {
                node.add_hook(id, meta.slot, Arc::new(hook));
                Arc::downgrade(node)
            }
            None => {
                meta.extra().hooks.push((id, Arc::new(hook)));
                Weak::new()
            }
        };
        Ok(HookHandle { id, tensor: Arc::downgrade(&self.0), node })
    }

    /// Calls `hook` with this leaf after each backward has added to its `.grad`. DDP starts its all-reduce here.
    pub fn register_post_accumulate_grad_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<()> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        if !self.requires_grad() || !self.is_leaf() {
            return Err(Error::autograd(
                "register_post_accumulate_grad_hook: post accumulate grad hooks can be registered only on leaf tensors that require gradients",
            ));
        }
        let id = NEXT.fetch_add(1, Relaxed);
        self.meta().extra().post_hooks.push((id, Arc::new(hook)));
        Ok(HookHandle { id, tensor: Arc::downgrade(&self.0), node: Weak::new() })
    }
}
