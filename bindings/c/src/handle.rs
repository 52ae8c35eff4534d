//! Tensors as pointers: a handle is the tensor's own reference, so it costs no allocation.

use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::mem::{ManuallyDrop, transmute};

/// A reference to a tensor.
#[repr(C)]
pub struct rl_tensor {
    _private: [u8; 0],
}

/// A tensor as a handle that its receiver frees.
#[inline]
pub fn give(tensor: Tensor) -> *mut rl_tensor {
    // SAFETY: a tensor is one pointer that is not null (the sizes are checked by the compiler); only this module turns
    // it back.
    unsafe { transmute::<Tensor, *mut rl_tensor>(tensor) }
}

/// Takes a handle's reference over.
///
/// # Safety
/// `handle` came from [`give`] and is not used again.
#[inline]
pub unsafe fn take(handle: *mut rl_tensor) -> Tensor {
    // SAFETY: by this function's contract.
    unsafe { transmute::<*mut rl_tensor, Tensor>(handle) }
}

/// A tensor borrowed from a handle.
pub struct Borrowed(ManuallyDrop<Tensor>);

impl std::ops::Deref for Borrowed {
    type Target = Tensor;
    #[inline]
    fn deref(&self) -> &Tensor {
        &self.0
    }
}

/// The tensor of a handle.
///
/// # Safety
/// `handle` is null or alive during the borrow.
#[inline]
pub unsafe fn borrow(handle: *const rl_tensor) -> Result<Borrowed> {
    if handle.is_null() {
        return Err(undefined());
    }
    // SAFETY: as in `take`; the reference stays the handle's, because it is not dropped.
    Ok(Borrowed(ManuallyDrop::new(unsafe { take(handle.cast_mut()) })))
}

/// A null handle is an undefined tensor.
///
/// # Safety
/// As for [`borrow`].
pub unsafe fn optional(handle: *const rl_tensor) -> Option<Tensor> {
    // SAFETY: by this function's contract.
    unsafe { borrow(handle) }.ok().map(|t| t.clone())
}

#[cold]
pub fn undefined() -> Error {
    Error::value("expected a tensor, got an undefined one (a null handle)")
}

/// A slice from a pointer and a length.
///
/// # Safety
/// `count` elements lie at `data`, or `count` is zero.
pub unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: by this function's contract.
        _ => unsafe { std::slice::from_raw_parts(data, count) },
    }
}

/// Tensors from an array of handles.
///
/// # Safety
/// An array of `count` live handles, none of them null.
pub unsafe fn all(handles: *const *mut rl_tensor, count: usize) -> Result<Vec<Tensor>> {
    // SAFETY: by this function's contract.
    unsafe { slice(handles, count).iter().map(|&h| Ok(borrow(h)?.clone())).collect() }
}

/// Writes a result.
///
/// # Safety
/// `out` is null or valid for a write.
pub unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(Error::value("the pointer for the result is null"));
    }
    // SAFETY: by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}
