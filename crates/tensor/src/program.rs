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

pub use rushlight_core::program::{Buffer, Program, Slot};

use rushlight_core::backend::{Call, Storage, View};
use std::cell::{Cell, RefCell};
use std::io::Write;

thread_local! {
    static NOTING: Cell<bool> = const { Cell::new(false) };
    static PROGRAM: RefCell<Option<Program>> = const { RefCell::new(None) };
}

/// Whether this thread notes its calls.
#[inline]
pub(crate) fn is_noting() -> bool {
    NOTING.get()
}

#[cold]
pub(crate) fn note(call: &Call<View>) {
    PROGRAM.with_borrow_mut(|program| {
        if let Some(program) = program {
            program.push(call);
        }
    });
}

#[cold]
pub(crate) fn note_memory(storage: &Storage) {
    PROGRAM.with_borrow_mut(|program| {
        if let Some(program) = program {
            program.allocate(storage);
        }
    });
}

/// Notes the calls of this thread until it is dropped; then the ones noted before go on.
pub(crate) struct Noting {
    before: Option<Program>,
}

impl Noting {
    pub(crate) fn begin() -> Self {
        NOTING.set(true);
        Self { before: PROGRAM.replace(Some(Program::default())) }
    }

    /// The calls noted so far.
    pub(crate) fn take(&self) -> Program {
        PROGRAM.take().unwrap_or_default()
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        NOTING.set(self.before.is_some());
        // A thread that ends within a recording has no program any more.
        let _ = PROGRAM.try_with(|program| program.replace(self.before.take()));
    }
}

/// The variable that has recorded programs written: to standard error if it is `1`, else to the end of the file it
/// names.
pub const LOG_GRAPH: &str = "RUSHLIGHT_LOG_GRAPH";

/// Writes the program of a recorded step, with what is wrong with it, where [`LOG_GRAPH`] asks for it.
pub(crate) fn log(program: &Program) {
    let Some(target) = std::env::var_os(LOG_GRAPH).filter(|target| !target.is_empty() && target != "0") else { return };
    let fault = program.verify().err().map(|e| format!("# not valid: {e}\n")).unwrap_or_default();
    let text = format!("{program}{fault}");
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
    let noting = Noting::begin();
    let out = f();
    let program = noting.take();
    (out, program)
}
