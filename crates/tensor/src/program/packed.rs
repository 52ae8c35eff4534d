//! Constant weights in their engines' layouts. Programs for other sizes of inputs share them.

use super::Slot;
use super::passes::Use;
use rushlight_core::backend::{Conv, Packed, Storage, View};
use rushlight_core::layout::Layout;
use rushlight_core::sync::lock;
use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

/// A weight that some program holds.
struct Kept {
    weight: Weak<Storage>,
    version: u32,
    layout: Layout,
    /// The convolution that it is packed for; not for a product.
    conv: Option<Conv>,
    packed: Weak<dyn Any + Send + Sync>,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// The weight in `w`'s layout, packed for one use; `None` if its engine has no better layout.
pub(super) fn packed(by: &Use, storage: &Arc<Storage>, w: &Slot) -> Option<Packed> {
    let conv = match by {
        Use::Conv(spec) => Some(**spec),
        Use::Product(_) => None,
    };
    let version = storage.version();
    let is_this = |kept: &Kept| {
        kept.version == version
            && kept.conv == conv
            && kept.layout == w.layout
            && kept.weight.as_ptr() == Arc::as_ptr(storage)
    };
    let mut all = lock(&KEPT);
    // A weak pointer keeps its address from being used again, until the entry goes.
    all.retain(|kept| kept.packed.strong_count() > 0);
    if let Some(packed) = all.iter().find(|kept| is_this(kept)).and_then(|kept| kept.packed.upgrade()) {
        return Some(Packed(packed));
    }
    drop(all);
    let view = View::new(storage, &w.layout, w.dtype).ok()?;
    let engine = rushlight_engines::backend(storage.device()).ok()?;
    let packed = match by {
        Use::Conv(spec) => engine.pack_conv(spec, view).ok()??,
        Use::Product(rows) => engine.pack_weight(view, *rows).ok()??,
    };
    let (weight, layout) = (Arc::downgrade(storage), w.layout.clone());
    lock(&KEPT).push(Kept { weight, version, layout, conv, packed: Arc::downgrade(&packed.0) });
    Some(packed)
}
