//! Hooks on a module's forward pass.

use crate::{Forward, Member, MemberMut, Memo, Module};
use rushlight_core::Result;
use rushlight_core::sync::lock;
use rushlight_tensor::Tensor;
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

type PreHook<M> = dyn Fn(&M, &Tensor) -> Result<Option<Tensor>> + Send + Sync;
type PostHook<M> = dyn Fn(&M, &Tensor, &Tensor) -> Result<Option<Tensor>> + Send + Sync;

enum Hook<M> {
    Before(Arc<PreHook<M>>),
    After(Arc<PostHook<M>>),
}

impl<M> Clone for Hook<M> {
    fn clone(&self) -> Self {
        match self {
            Hook::Before(hook) => Hook::Before(hook.clone()),
            Hook::After(hook) => Hook::After(hook.clone()),
        }
    }
}

/// The hooks of a module by number, in order of registration.
type Hooks<M> = Mutex<Vec<(u64, Hook<M>)>>;

/// A module whose forward pass can be watched and changed: PyTorch's `register_forward_hook`. It has the names, the
/// state dict and the text of the module itself.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Hooked, Linear, Module, ReLU, Sequential};
/// use rushlight::Tensor;
/// use std::sync::{Arc, Mutex};
/// let layer = Hooked::new(Linear::new(4, 8)?);
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let keep = seen.clone();
/// let handle = layer.register_forward_hook(move |_layer, _input, output| {
///     keep.lock().unwrap().push(output.detach());
///     Ok(None)
/// });
/// let net = Sequential::from((layer, ReLU));
/// net.forward(&Tensor::ones([2, 4])?)?;
/// assert_eq!(seen.lock().unwrap()[0].shape(), [2, 8]);
/// assert_eq!(net.named_parameters()[0].0, "0.weight");
/// handle.remove();
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Hooked<M> {
    module: M,
    hooks: Arc<Hooks<M>>,
}

/// Removes a hook on request. Dropping the handle leaves the hook in place.
#[must_use = "dropping the handle leaves the hook in place for good; say `let _ =` if that is meant"]
pub struct ForwardHookHandle<M> {
    id: u64,
    hooks: Weak<Hooks<M>>,
}

impl<M> ForwardHookHandle<M> {
    /// Removes the hook.
    pub fn remove(self) {
        if let Some(hooks) = self.hooks.upgrade() {
            lock(&hooks).retain(|(id, _)| *id != self.id);
        }
    }
}

impl<M: Module> Hooked<M> {
    /// A module without hooks yet.
    pub fn new(module: M) -> Self {
        Self { module, hooks: Arc::new(Mutex::new(Vec::new())) }
    }

    /// The module itself; its hooks are gone.
    pub fn into_inner(self) -> M {
        self.module
    }

    fn register(&self, hook: Hook<M>) -> ForwardHookHandle<M> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Relaxed);
        lock(&self.hooks).push((id, hook));
        ForwardHookHandle { id, hooks: Arc::downgrade(&self.hooks) }
    }

    /// Calls `hook` with the input before each forward pass; a returned tensor replaces the input.
    pub fn register_forward_pre_hook(
        &self,
        hook: impl Fn(&M, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> ForwardHookHandle<M> {
        self.register(Hook::Before(Arc::new(hook)))
    }

    /// Calls `hook` with input and output after each forward pass; a returned tensor replaces the
    /// output.
    pub fn register_forward_hook(
        &self,
        hook: impl Fn(&M, &Tensor, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> ForwardHookHandle<M> {
        self.register(Hook::After(Arc::new(hook)))
    }
}

impl<M: Forward> Forward for Hooked<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        // A copy of the list, so that hooks may register and remove hooks.
        let hooks: Vec<Hook<M>> = lock(&self.hooks).iter().map(|(_, hook)| hook.clone()).collect();
        let mut input = input.clone();
        for hook in &hooks {
            if let Hook::Before(hook) = hook
                && let Some(other) = hook(&self.module, &input)?
            {
                input = other;
            }
        }
        let mut output = self.module.forward(&input)?;
        for hook in &hooks {
            if let Hook::After(hook) = hook
                && let Some(other) = hook(&self.module, &input, &output)?
            {
                output = other;
            }
        }
        Ok(output)
    }
}

impl<M> Deref for Hooked<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M> DerefMut for Hooked<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.module
    }
}

crate::module::shown_by_repr!([M: Module] Hooked<M>);

impl<M: Module> Module for Hooked<M> {
    fn type_name(&self) -> &'static str {
        self.module.type_name()
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        self.module.members(visit);
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        self.module.members_mut(visit);
    }

    fn extra_repr(&self) -> String {
        self.module.extra_repr()
    }

    /// The copy has the same hooks, as in PyTorch.
    fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
        let hooks = lock(&self.hooks).clone();
        Ok(Box::new(Self { module: memo.module(&self.module)?, hooks: Arc::new(Mutex::new(hooks)) }))
    }
}
