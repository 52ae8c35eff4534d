//! Compiling kernels ahead of their first use, on threads of their own.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Compilations under way, and the process they belong to: a forked child has none of its parent's threads.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// The compiler must not be taken away while it works.
extern "C" fn wait_for_all() {
    while ACTIVE.load(SeqCst) > 0 && PROCESS.load(SeqCst) == std::process::id() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts a compilation while it lives.
struct Turn;

impl Turn {
    fn new() -> Self {
        static AT_EXIT: Once = Once::new();
        // Handlers run in reverse order: this one before those of the compiler's library, which is open already.
        // SAFETY: a function without arguments that does not unwind.
        AT_EXIT.call_once(|| _ = unsafe { atexit(wait_for_all) });
        let process = std::process::id();
        if PROCESS.swap(process, SeqCst) != process {
            ACTIVE.store(0, SeqCst);
        }
        ACTIVE.fetch_add(1, SeqCst);
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(1, SeqCst);
    }
}

/// Runs a compilation in the background; where no thread can be had it is left to whoever needs its result.
pub fn compile(work: impl FnOnce() + Send + 'static) {
    let turn = Turn::new();
    let run = move || {
        let _turn = turn;
        work();
    };
    drop(std::thread::Builder::new().name("compile".into()).spawn(run));
}
