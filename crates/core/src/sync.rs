//! Locks that survive a panic, pointers that parallel tasks share, and values of threads that rarely have one.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;

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

/// A value that each thread has for itself and that is nearly always the usual one, such as a mode that is off.
///
/// Threads with another value are counted. While there are none, a look reads the count; a thread-local of a shared
/// library costs a call of the loader, and ops look at several.
///
/// ```
/// use rushlight_core::sync::Seldom;
/// use std::cell::Cell;
/// thread_local! { static OWN: Cell<u8> = const { Cell::new(0) } }
/// static LEVEL: Seldom<u8> = Seldom::new(0, &OWN);
/// assert_eq!(LEVEL.replace(3), 0);
/// std::thread::spawn(|| assert_eq!(LEVEL.get(), 0)).join().unwrap();
/// assert_eq!((LEVEL.replace(0), LEVEL.get()), (3, 0));
/// ```
pub struct Seldom<T: 'static> {
    usual: T,
    /// Threads whose value is not the usual one. Each changes it for itself, so it never misses its own.
    others: AtomicUsize,
    own: &'static LocalKey<Cell<T>>,
}

impl<T: Copy + PartialEq> Seldom<T> {
    /// With the usual value, which is also what `own` begins with.
    pub const fn new(usual: T, own: &'static LocalKey<Cell<T>>) -> Self {
        Self { usual, others: AtomicUsize::new(0), own }
    }

    /// The calling thread's value.
    #[inline(always)]
    pub fn get(&'static self) -> T {
        if self.others.load(Relaxed) == 0 { self.usual } else { self.look() }
    }

    #[cold]
    fn look(&'static self) -> T {
        // A thread that ends has lost its own.
        self.own.try_with(Cell::get).unwrap_or(self.usual)
    }

    /// Sets the calling thread's value; returns the previous one.
    #[inline]
    pub fn replace(&'static self, value: T) -> T {
        if value == self.usual && self.others.load(Relaxed) == 0 {
            return value;
        }
        let Ok(before) = self.own.try_with(|own| own.replace(value)) else { return self.usual };
        match (before == self.usual, value == self.usual) {
            (true, false) => _ = self.others.fetch_add(1, Relaxed),
            (false, true) => _ = self.others.fetch_sub(1, Relaxed),
            _ => {}
        }
        before
    }

    /// Sets the calling thread's value.
    #[inline]
    pub fn set(&'static self, value: T) {
        self.replace(value);
    }
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
