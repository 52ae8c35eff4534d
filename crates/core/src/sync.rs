//! Locks that survive a panic, and pointers that parallel tasks share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A thread that panicked under the lock is no reason to fail here: critical sections leave consistent
/// state.
///
/// ```
/// use rushlight_core::sync::lock;
/// let count = std::sync::Mutex::new(1);
/// *lock(&count) += 1;
/// assert_eq!(*lock(&count), 2);
/// ```
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pointer that the tasks of a parallel region share. Its users keep each task to its own part.
pub struct SendPtr<T>(*mut T);

impl<T> Clone for SendPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SendPtr<T> {}
// SAFETY: only an address. Who reads or writes through it promises that tasks touch disjoint parts.
unsafe impl<T> Send for SendPtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    /// Of a pointer that is written through.
    #[inline(always)]
    pub const fn new(ptr: *mut T) -> Self {
        Self(ptr)
    }

    /// Of a pointer that is only read.
    #[inline(always)]
    pub const fn of(ptr: *const T) -> Self {
        Self(ptr.cast_mut())
    }

    /// The pointer. (A method, so that closures capture the wrapper and not the bare pointer.)
    #[inline(always)]
    pub const fn get(self) -> *mut T {
        self.0
    }

    /// The pointer plus `i` elements.
    #[inline(always)]
    pub const fn at(self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}
