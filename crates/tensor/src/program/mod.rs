//! Programs: the engine calls of a computation, noted while it runs.
//!
//! ```
//! # use rushlight_tensor as rushlight;
//! use rushlight::{Tensor, program};
//! let x = Tensor::ones([2, 3])?;
//! let (y, program) = program::trace(|| x.matmul(&x.t()?)?.relu());
//! assert_eq!(y?.shape(), [2, 2]);
//! assert_eq!(program.calls().iter().map(|call| call.name()).collect::<Vec<_>>(), ["matmul", "pointwise"]);
//! program.verify()?;
//! println!("{program}");
//! # Ok::<(), rushlight_core::Error>(())
//! ```

pub(crate) mod bisect;
mod packed;
mod recipe;
mod run;

pub use bisect::{BISECT, Difference};
pub(crate) use recipe::recipe;
pub use run::Runner;
pub use rushlight_core::program::{Buffer, Program, Slot, passes};

use crate::capture;
use rushlight_core::Device;
use rushlight_core::backend::{Call, Storage, View};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

thread_local! {
    static NOTING: Cell<State> = const { Cell::new(State::Nothing) };
    static PROGRAM: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// What this thread notes.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Nothing,
    Calls,
    /// Nothing, while the calls around are noted.
    Suspended,
}

/// A program that is being recorded, with the memory that it uses.
#[derive(Default)]
struct Notes {
    program: Program,
    /// The only device whose calls count. Work on others is done while a step is recorded, and its replays do not
    /// repeat it: an optimizer's counts on the host.
    device: Option<Device>,
    /// The program's own buffers.
    own: Vec<(usize, Weak<Storage>)>,
    /// Memory that a run of the program needs and does not make, where it is kept: by address.
    held: Option<HashMap<usize, Arc<Storage>>>,
    /// Why a run of the calls alone would not be the same.
    broken: Option<String>,
}

/// Whether a call's kernel is compiled in the background, and declined until it is.
pub(crate) fn is_fused<V>(call: &Call<V>) -> bool {
    matches!(call, Call::Fused(_) | Call::FusedReduce(_) | Call::FusedRows(_))
}

/// Recordings in progress, of all threads: a look at it is cheaper than one at the thread's own.
static RECORDINGS: AtomicUsize = AtomicUsize::new(0);

/// Whether any thread records anything.
#[inline(always)]
pub(crate) fn any_recordings() -> bool {
    RECORDINGS.load(Relaxed) != 0
}

/// Whether this thread notes its calls.
#[inline]
pub(crate) fn is_noting() -> bool {
    RECORDINGS.load(Relaxed) != 0 && NOTING.get() == State::Calls
}

/// Whether this thread notes memory that is allocated.
#[inline]
pub(crate) fn is_noting_memory() -> bool {
    RECORDINGS.load(Relaxed) != 0 && NOTING.get() != State::Nothing
}

#[cold]
pub(crate) fn note(call: &Call<View>) {
    crate::announce::call(call);
    with(|notes| {
        let elsewhere = |device: Device| call.output().is_some_and(|out| out.storage().device() != device);
        if !notes.device.is_some_and(elsewhere) {
            notes.program.push(call);
        }
    });
}

#[cold]
pub(crate) fn note_memory(storage: &Arc<Storage>) {
    with(|notes| {
        if notes.device.is_some_and(|device| storage.device() != device) {
            return;
        }
        let buffer = notes.program.buffers().len();
        notes.program.allocate(storage);
        if notes.program.buffers().len() == buffer {
            return;
        }
        if is_noting() {
            notes.own.push((buffer, Arc::downgrade(storage)));
        } else {
            // Also where a buffer of the program's own was before.
            notes.program.set_outside(buffer);
        }
    });
}

fn with<T>(f: impl FnOnce(&mut Notes) -> T) -> Option<T> {
    PROGRAM.with_borrow_mut(|notes| notes.as_mut().map(f))
}

/// Notes that a call is about to use a tensor's memory.
#[cold]
pub(crate) fn note_use(storage: &Arc<Storage>) {
    capture::note_use(storage);
    with(|notes| {
        let outside = |n: &Notes| {
            n.program.buffer_at(storage.ptr() as usize).is_none_or(|buffer| n.program.buffers()[buffer].outside)
        };
        if notes.held.is_some() && outside(notes) {
            notes.held.get_or_insert_default().entry(storage.ptr() as usize).or_insert_with(|| storage.clone());
        }
    });
}

/// Notes memory that the host has written: a constant of the program.
#[cold]
pub(crate) fn note_elements(storage: &Arc<Storage>) {
    with(|notes| {
        if let Some(held) = &mut notes.held {
            held.insert(storage.ptr() as usize, storage.clone());
            if let Some(buffer) = notes.program.buffer_at(storage.ptr() as usize) {
                notes.program.set_outside(buffer);
            }
        }
    });
}

/// Notes work of the device that is not a call: a recorded step that has some is replayed as it was recorded.
pub fn note_foreign(what: &'static str) {
    if is_noting() {
        crate::announce::foreign(what);
        with(|notes| notes.program.note_foreign(what));
    }
}

/// Notes why the calls of this thread cannot be run again by themselves.
pub(crate) fn note_break(reason: impl FnOnce() -> String) {
    if is_noting() {
        with(|notes| {
            if notes.held.is_some() && notes.broken.is_none() {
                notes.broken = Some(reason());
            }
        });
    }
}

/// Notes that `call` reads values on the host.
pub(crate) fn note_host(call: &str) {
    note_break(|| format!("{call} reads values on the host, or moves them"));
}

/// Whether this thread notes calls for runs of their own: ops then do not look at values.
pub(crate) fn is_holding() -> bool {
    is_noting() && with(|notes| notes.held.is_some()).unwrap_or(false)
}

/// Runs `f`, whose calls are not noted.
pub(crate) fn unnoted<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(State);
    impl Drop for Restore {
        fn drop(&mut self) {
            NOTING.set(self.0);
        }
    }
    let before = NOTING.get();
    let _restore = Restore(before);
    NOTING.set(if before == State::Nothing { State::Nothing } else { State::Suspended });
    f()
}

/// Notes the calls of this thread until it is dropped; then the ones noted before go on.
pub(crate) struct Noting {
    before: Option<Notes>,
}

/// What was noted.
pub(crate) struct Noted {
    /// Its results are the buffers that something still refers to.
    pub program: Program,
    /// The program's own buffers that are still there.
    pub alive: HashMap<usize, Arc<Storage>>,
    /// Memory from outside and constants, by buffer.
    pub held: Vec<(usize, Arc<Storage>)>,
    /// Why a run of the calls alone would not be the same.
    pub broken: Option<String>,
}

impl Noting {
    /// Of one device, or of all.
    pub(crate) fn begin(device: Option<Device>) -> Self {
        RECORDINGS.fetch_add(1, Relaxed);
        NOTING.set(State::Calls);
        Self { before: PROGRAM.replace(Some(Notes { device, ..Notes::default() })) }
    }

    /// Keeps the memory that a run of the program needs.
    pub(crate) fn begin_holding() -> Self {
        RECORDINGS.fetch_add(1, Relaxed);
        NOTING.set(State::Calls);
        Self { before: PROGRAM.replace(Some(Notes { held: Some(HashMap::new()), ..Notes::default() })) }
    }

    /// The number of calls noted so far.
    pub(crate) fn len(&self) -> usize {
        with(|notes| notes.program.calls().len()).unwrap_or(0)
    }

    /// What was noted so far.
    pub(crate) fn end(&self) -> Noted {
        let Notes { program, own, held, broken, .. } = PROGRAM.take().unwrap_or_default();
        let held: Vec<(usize, Arc<Storage>)> = held
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(address, storage)| {
                let buffer = program.buffer_at(address)?;
                program.buffers()[buffer].outside.then_some((buffer, storage))
            })
            .collect();
        let alive: HashMap<usize, Arc<Storage>> =
            own.iter().filter_map(|(buffer, storage)| Some((*buffer, storage.upgrade()?))).collect();
        let results: Vec<usize> = alive.keys().copied().collect();
        Noted { program: program.with_results(results), alive, held, broken }
    }

    /// The calls noted so far. Their results are the buffers that something still refers to.
    pub(crate) fn take(&self) -> Program {
        self.end().program
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        RECORDINGS.fetch_sub(1, Relaxed);
        NOTING.set(if self.before.is_some() { State::Calls } else { State::Nothing });
        // A thread that ends within a recording has no program any more.
        let _ = PROGRAM.try_with(|program| program.replace(self.before.take()));
    }
}

/// The variable that has recorded programs written: to standard error if it is `1`, else to the end of the file it
/// names.
pub const LOG_GRAPH: &str = "RUSHLIGHT_LOG_GRAPH";

/// Writes the program of a recorded step, with what is wrong with it, where [`LOG_GRAPH`] asks for it. `what` is its
/// heading.
pub(crate) fn log(what: &str, program: &Program) {
    let Some(target) = std::env::var_os(LOG_GRAPH).filter(|target| !target.is_empty() && target != "0") else { return };
    let fault = program.verify().err().map(|e| format!("# not valid: {e}\n")).unwrap_or_default();
    let text = format!("# {what}\n{program}{fault}");
    let written = if target == "1" {
        std::io::stderr().write_all(text.as_bytes())
    } else {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&target);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
    };
    if let Err(e) = written {
        eprintln!("rushlight: {LOG_GRAPH}: cannot write to {}: {e}", target.display());
    }
}

/// Runs a closure and returns, besides its result, the calls that this thread made. Work of other threads, such as a
/// backward pass on another device's thread, is not in it.
pub fn trace<T>(f: impl FnOnce() -> T) -> (T, Program) {
    let noting = Noting::begin(None);
    let out = f();
    let program = noting.take();
    (out, program)
}
