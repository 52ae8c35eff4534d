//! The engine `mpi`: collectives over the system's MPI, opened at run time when a program selects it.
//!
//! Any library of the MPICH family, Open MPI or the standard ABI of MPI 5 works (`abi`); `library` documents the
//! search. Nothing here runs unless the backend `mpi` is chosen.
//!
//! MPI waits forever for a rank that has died. So collectives are non-blocking and polled until the group's
//! timeout or until the job's store reports a failure. The calls that exist only in blocking form (initialising,
//! making communicators, finalizing) run on a separate thread, for which the caller waits up to the timeout.
//! After a failure MPI may still hold requests: their memory is kept, and MPI is not finalized.
//!
//! MPI that another library has initialised (mpi4py) is used without initialising it again; that library finalizes it.

mod abi;
mod library;
mod ops;
mod transport;

pub(crate) use transport::MpiTransport;

use crate::comm::{Limit, ReduceOp};
use crate::launch::{Environment, Launch};
use abi::Handle;
use library::Mpi;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long the end of the process waits for MPI_Finalize. Dead ranks never reach it.
const FINALIZE_PATIENCE: Duration = Duration::from_secs(20);
/// Maximum bytes of buffered sends; further ones wait.
const MAX_SENDING: usize = 256 << 20;

static RUNTIME: Mutex<State> = Mutex::new(State::Unused);

enum State {
    Unused,
    /// Initialisation has begun and not returned.
    Stuck,
    Running(Arc<Runtime>),
}

/// MPI in this process: there is one.
pub(crate) struct Runtime {
    mpi: Mpi,
    /// This process in MPI_COMM_WORLD.
    rank: usize,
    size: usize,
    /// The largest tag.
    max_tag: u64,
    owner: Arc<Owner>,
    /// Set by the first failure. MPI may hold requests that never complete.
    failed: AtomicBool,
    ops: Mutex<HashMap<(DType, ReduceOp), Handle>>,
    sends: Mutex<Sends>,
    more_sends: Condvar,
    process: u32,
}

/// Sends whose data was copied, so that their callers do not wait.
#[derive(Default)]
struct Sends {
    under_way: Vec<(Handle, Vec<u8>)>,
    bytes: usize,
    has_thread: bool,
}

/// The thread for blocking calls.
#[derive(Default)]
struct Owner {
    tasks: Mutex<VecDeque<Box<dyn FnOnce() + Send>>>,
    changed: Condvar,
}

impl Owner {
    fn start() -> Result<Arc<Self>> {
        let owner = Arc::new(Self::default());
        let shared = owner.clone();
        std::thread::Builder::new().name("rushlight-mpi".into()).spawn(move || {
            loop {
                let mut tasks = lock(&shared.tasks);
                while tasks.is_empty() {
                    tasks = shared.changed.wait(tasks).unwrap_or_else(|e| e.into_inner());
                }
                let task = tasks.pop_front();
                drop(tasks);
                if let Some(task) = task {
                    task();
                }
            }
        })?;
        Ok(owner)
    }

    fn submit(&self, task: impl FnOnce() + Send + 'static) {
        lock(&self.tasks).push_back(Box::new(task));
        self.changed.notify_all();
    }

    /// Runs a call that may block, for as long as `wait` allows.
    fn run<T: Send + 'static>(
        &self,
        mut wait: impl FnMut() -> Result<()>,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let answer = Arc::new((Mutex::new(None), Condvar::new()));
        let shared = answer.clone();
        self.submit(move || {
            let value = call();
            *lock(&shared.0) = Some(value);
            shared.1.notify_all();
        });
        let mut slot = lock(&answer.0);
        loop {
            if let Some(value) = slot.take() {
                return Ok(value);
            }
            wait()?;
            slot = answer.1.wait_timeout(slot, Duration::from_millis(20)).unwrap_or_else(|e| e.into_inner()).0;
        }
    }
}

/// Properties found while initialising.
struct Started {
    mpi: Mpi,
    rank: usize,
    size: usize,
    max_tag: u64,
    /// Whether this call initialised MPI, and so has to finalize it.
    ours: bool,
}

impl Runtime {
    /// MPI, opened and initialised by the first call.
    pub(crate) fn start(env: &Environment, limit: &Limit) -> Result<Arc<Self>> {
        let mut state = lock(&RUNTIME);
        match &*state {
            State::Running(runtime) => {
                return match runtime.failed.load(Relaxed) {
                    true => Err(Error::io(
                        "init_process_group: MPI cannot be used again in a process in which a collective of it has failed; \
                         use the backend tcp, or restart the program",
                    )),
                    false => Ok(runtime.clone()),
                };
            }
            State::Stuck => {
                return Err(Error::io("init_process_group: MPI_Init_thread has not returned since the last call"));
            }
            State::Unused => {}
        }
        let owner = Owner::start()?;
        *state = State::Stuck;
        let own = env.clone();
        let started = owner.run(|| limit.check(|| "MPI_Init_thread".into()), move || initialise(&own))?;
        let Started { mpi, rank, size, max_tag, ours } = match started {
            Ok(started) => started,
            Err(e) => {
                *state = State::Unused;
                return Err(e);
            }
        };
        let runtime = Arc::new(Self {
            mpi,
            rank,
            size,
            max_tag,
            owner,
            failed: AtomicBool::new(false),
            ops: Mutex::default(),
            sends: Mutex::default(),
            more_sends: Condvar::new(),
            process: std::process::id(),
        });
        *state = State::Running(runtime.clone());
        if ours {
            // SAFETY: the handler is a function of this library, which is never unloaded.
            unsafe { libc::atexit(finalize_at_exit) };
        }
        Ok(runtime)
    }

    /// The library, for people.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({}, handles of {:?})", self.mpi.version, self.mpi.path, self.mpi.family)
    }

    /// Compares MPI's rank and size with the launcher's. If the launcher does not report them, MPI's are used.
    pub(crate) fn reconcile(&self, launch: Result<Launch>, place: Option<(usize, usize)>) -> Result<Launch> {
        let wrong = |what: String| {
            Err(Error::value(format!(
                "init_process_group: {what}, but MPI says rank {} of {} ({}). The library is not the launcher's, or the \
                 launcher was not told to serve MPI (srun --mpi=pmi2 or --mpi=pmix). {} names another library.",
                self.rank,
                self.size,
                self.describe(),
                library::VARIABLE
            )))
        };
        if let Some((rank, size)) = place {
            return match size == self.size {
                true => Launch::explicit(rank, size),
                false => wrong(format!("the program says rank {rank} of {size}")),
            };
        }
        let by_mpi = || {
            let mut launch = Launch::explicit(self.rank, self.size)?;
            launch.reasons =
                vec![format!("rank {} of {} from MPI_COMM_WORLD of {}", self.rank, self.size, self.describe())];
            Ok(launch)
        };
        match launch {
            Ok(launch) if (launch.rank, launch.world_size) == (self.rank, self.size) => Ok(launch),
            Ok(launch) if launch.world_size == 1 => by_mpi(),
            Ok(launch) => wrong(format!("{} says rank {} of {}", launch.launcher, launch.rank, launch.world_size)),
            // The launcher's variables are not enough, as under PALS without a node file.
            Err(_) if self.size > 1 => by_mpi(),
            Err(e) => Err(e),
        }
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        match code {
            0 => Ok(()),
            _ => Err(Error::io(format!("{call} failed: {}", self.mpi.functions.describe(code)))),
        }
    }

    /// Runs a call that blocks until all participating ranks have called it.
    fn blocking<T: Send + 'static>(
        &self,
        name: &str,
        limit: &Limit,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let wait = || limit.check(|| format!("the other ranks, in {name}"));
        self.owner.run(wait, call).inspect_err(|_| self.failed.store(true, Relaxed))?
    }

    /// An operation of this library, created on first use.
    fn op(&self, dtype: DType, op: ReduceOp) -> Result<Handle> {
        let mut ops = lock(&self.ops);
        if let Some(handle) = ops.get(&(dtype, op)) {
            return Ok(*handle);
        }
        let function = ops::function(dtype, op)
            .ok_or_else(|| Error::unsupported(format!("the engine mpi has no reduction {op} of {dtype}")))?;
        let mut handle: Handle = 0;
        // SAFETY: the function lives as long as the program; the operation commutes.
        self.check("MPI_Op_create", unsafe { (self.mpi.functions.op_create)(function, 1, &mut handle) })?;
        ops.insert((dtype, op), handle);
        Ok(handle)
    }

    /// Takes over a send that owns its bytes. A thread completes it: MPI makes no progress by itself.
    fn keep_sending(self: &Arc<Self>, request: Handle, bytes: Vec<u8>) -> Result<()> {
        let mut sends = lock(&self.sends);
        sends.bytes += bytes.len();
        sends.under_way.push((request, bytes));
        if !sends.has_thread {
            let runtime = self.clone();
            std::thread::Builder::new().name("rushlight-mpi-send".into()).spawn(move || runtime.see_through())?;
            sends.has_thread = true;
        }
        drop(sends);
        self.more_sends.notify_all();
        Ok(())
    }

    fn see_through(&self) {
        loop {
            let mut sends = lock(&self.sends);
            while sends.under_way.is_empty() || self.failed.load(Relaxed) {
                sends = self.more_sends.wait(sends).unwrap_or_else(|e| e.into_inner());
            }
            let mut ended = 0;
            sends.under_way.retain_mut(|(request, bytes)| {
                let (mut done, mut status) = (0, abi::Status::default());
                // SAFETY: a request under way; its bytes are kept until it is done.
                let code = unsafe { (self.mpi.functions.test)(request, &mut done, &mut status) };
                let over = done != 0 || code != 0;
                ended += if over { bytes.len() } else { 0 };
                !over
            });
            sends.bytes -= ended;
            drop(sends);
            std::thread::sleep(Duration::from_micros(if ended > 0 { 20 } else { 200 }));
        }
    }

    /// Waits until another send of `bytes` bytes may be buffered.
    fn wait_for_room(&self, bytes: usize, limit: &Limit, to: impl Fn() -> String) -> Result<()> {
        loop {
            {
                let sends = lock(&self.sends);
                if sends.under_way.is_empty() || sends.bytes + bytes <= MAX_SENDING {
                    return Ok(());
                }
            }
            limit.check(&to)?;
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Opens the library and initialises MPI, unless another library has.
fn initialise(env: &Environment) -> Result<Started> {
    let mpi = library::open(env)?;
    let (f, c) = (&mpi.functions, &mpi.constants);
    let check = |call: &str, code: c_int| match code {
        0 => Ok(()),
        _ => Err(Error::io(format!("init_process_group: {call} of {} failed: {}", mpi.version, f.describe(code)))),
    };
    let (mut initialised, mut finalised, mut level) = (0, 0, 0);
    let (mut rank, mut size) = (0, 0);
    let (mut tag, mut has_tag): (*const c_int, c_int) = (std::ptr::null(), 0);
    // SAFETY: every pointer is to a variable of this frame.
    unsafe {
        check("MPI_Initialized", (f.initialized)(&mut initialised))?;
        check("MPI_Finalized", (f.finalized)(&mut finalised))?;
        if finalised != 0 {
            return Err(Error::value(format!(
                "init_process_group: MPI ({}) was finalized by another part of this program and cannot start again; \
                 use the backend tcp",
                mpi.version
            )));
        }
        use std::ptr::null_mut;
        match initialised {
            0 => check("MPI_Init_thread", (f.init_thread)(null_mut(), null_mut(), c.thread_multiple, &mut level))?,
            _ => check("MPI_Query_thread", (f.query_thread)(&mut level))?,
        }
        if level < c.thread_multiple {
            return Err(Error::unsupported(format!(
                "init_process_group: MPI ({}) was initialised with thread level {level}, but is called from several \
                 threads here: initialise it with MPI_THREAD_MULTIPLE, as mpi4py does, or use the backend tcp",
                mpi.version
            )));
        }
        if initialised == 0 {
            check("MPI_Comm_set_errhandler", (f.comm_set_errhandler)(c.comm_world, c.errors_return))?;
        }
        check("MPI_Comm_rank", (f.comm_rank)(c.comm_world, &mut rank))?;
        check("MPI_Comm_size", (f.comm_size)(c.comm_world, &mut size))?;
        let value = (&raw mut tag).cast();
        check("MPI_Comm_get_attr", (f.comm_get_attr)(c.comm_world, c.tag_upper_bound, value, &mut has_tag))?;
    }
    let max_tag = match has_tag != 0 && !tag.is_null() {
        // SAFETY: MPI returns the address of its own integer.
        true => unsafe { *tag }.max(32767) as u64,
        // The minimum that MPI guarantees.
        false => 32767,
    };
    Ok(Started { rank: rank as usize, size: size as usize, max_tag, ours: initialised == 0, mpi })
}

/// Finalizes MPI when the process ends cleanly. Launchers treat a rank that does not as crashed.
///
/// Thread-local variables are gone at this point.
extern "C" fn finalize_at_exit() {
    let Ok(state) = RUNTIME.try_lock() else { return };
    let State::Running(runtime) = &*state else { return };
    if runtime.failed.load(Relaxed) || runtime.process != std::process::id() {
        return;
    }
    let until = Instant::now() + FINALIZE_PATIENCE;
    let in_time = || if Instant::now() < until { Ok(()) } else { Err(Error::io("")) };
    let shared = runtime.clone();
    let result = runtime.owner.run(in_time, move || {
        while Instant::now() < until && !lock(&shared.sends).under_way.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut finalised = 0;
        // SAFETY: MPI is initialised; its other callers have ended, or it is not ours to wait for them.
        unsafe {
            (shared.mpi.functions.finalized)(&mut finalised);
            if finalised == 0 {
                (shared.mpi.functions.finalize)();
            }
        }
    });
    if result.is_err() {
        rushlight_core::warn!(
            "MPI_Finalize has not returned after {} s; another rank has not reached it",
            FINALIZE_PATIENCE.as_secs()
        );
    }
}
