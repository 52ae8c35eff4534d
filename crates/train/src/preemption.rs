//! Preemption: a job that is about to lose its nodes saves its state at the end of a step and requests a requeue.
//!
//! Schedulers send a signal some time before they take the nodes. The signal handler only sets a flag: a handler that
//! saves could interrupt a holder of the locks it needs. At the end of each step the ranks exchange their flags, so
//! that all stop after the same step.

use rushlight_core::{Error, Result};
use rushlight_dist::{Collective, ProcessGroup, ReduceOp, Work, World};
use rushlight_tensor::Tensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The exit code of a program that has saved its state and requests to be requeued.
/// `rushlight run` passes it on, and the scripts of `rushlight job` act on it. (`EX_TEMPFAIL`)
pub const REQUEUE_CODE: i32 = 75;

/// The received signal, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The requests that ranks exchange: a scheduler's signal on any rank outranks Ctrl-C.
const NONE: i32 = 0;
const INTERRUPT: i32 = 1;
const PREEMPT: i32 = 2;

/// The request of this rank's signal.
fn request() -> i32 {
    match SIGNAL.load(Relaxed) {
        0 => NONE,
        libc::SIGINT => INTERRUPT,
        _ => PREEMPT,
    }
}

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Relaxed);
}

/// Watches for the signals of schedulers that take a job's nodes: SIGTERM, and SIGUSR1 (`sbatch --signal`).
///
/// ```no_run
/// # mod rushlight { pub use rushlight_dist as dist; pub use rushlight_train as train; }
/// # use rushlight_nn::Linear;
/// use rushlight::train::{Checkpoints, Position, Preemption};
/// let world = rushlight::dist::init()?;
/// # let (model, mut position) = (Linear::new(20, 1)?, Position::default());
/// let mut checkpoints = Checkpoints::builder("run1").world(&world).background(true).build()?;
/// let mut preemption = Preemption::watch(&world)?;
/// loop {
///     // … a step …
///     position.step += 1;
///     if preemption.agreed()? {
///         checkpoints.save(position, &[("model", &model)])?;
///         checkpoints.finish()?;
///         drop((checkpoints, world)); // leaves the job in good order
///         std::process::exit(preemption.requeue());
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Preemption {
    group: Option<Arc<dyn ProcessGroup>>,
    is_first: bool,
    /// The pending exchange of the last step's flags.
    pending: Option<(Work, Tensor)>,
    /// The highest request of any rank.
    agreed: i32,
    /// Whether dropping it restores the default action of SIGINT.
    owns_interrupt: bool,
}

impl Preemption {
    /// Starts to watch, on every rank of a world. From now on SIGTERM and SIGUSR1 do not end this process.
    pub fn watch(world: &World) -> Result<Self> {
        install(&[(libc::SIGTERM, 0), (libc::SIGUSR1, 0)])?;
        Ok(Self::without_signals(Some(world)))
    }

    /// Watches for no signal yet. Without a world it is a job of one process.
    pub(crate) fn without_signals(world: Option<&World>) -> Self {
        let group = world.filter(|world| world.size() > 1).map(|world| world.group().clone());
        let is_first = world.is_none_or(|world| world.rank() == 0);
        Self { group, is_first, pending: None, agreed: NONE, owns_interrupt: false }
    }

    /// Watches for Ctrl-C (SIGINT) as well: the first saves and ends the run, a second ends the process at once.
    /// [`Preemption::requeue`] then requests no other job and returns 130, the exit code of an interrupted program.
    /// Dropping the value restores the default action of Ctrl-C.
    pub fn or_interrupt(mut self) -> Result<Self> {
        install(&[(libc::SIGINT, libc::SA_RESETHAND)])?;
        self.owns_interrupt = true;
        Ok(self)
    }

    /// Whether this rank has received a signal.
    pub fn is_requested(&self) -> bool {
        SIGNAL.load(Relaxed) != 0
    }

    /// The name of the signal that this rank has received.
    pub fn signal(&self) -> Option<&'static str> {
        match SIGNAL.load(Relaxed) {
            0 => None,
            libc::SIGTERM => Some("SIGTERM"),
            libc::SIGUSR1 => Some("SIGUSR1"),
            libc::SIGINT => Some("SIGINT"),
            _ => Some("a signal"),
        }
    }

    /// Whether the ranks must save their state and end: the same answer on every rank. Call it at the end of each
    /// step, equally often on every rank.
    ///
    /// It sends the flags of this step and returns the answer for the previous one, so no rank waits for the
    /// network, and a signal is acted on one step later.
    pub fn agreed(&mut self) -> Result<bool> {
        let Some(group) = &self.group else { return Ok(self.is_requested()) };
        if self.agreed != NONE {
            return Ok(true);
        }
        if let Some((work, flag)) = self.pending.take() {
            work.wait()?;
            self.agreed = flag.item::<i32>()?;
        }
        if self.agreed == NONE {
            let flag = Tensor::from_slice(&[request()], [1])?;
            let reduce = Collective::AllReduce { tensors: vec![flag.clone()], op: ReduceOp::Max };
            self.pending = Some((group.submit(reduce, true)?, flag));
        }
        Ok(self.agreed != NONE)
    }

    /// Whether the run ends because of Ctrl-C: the same answer on every rank, after [`Preemption::agreed`].
    pub fn is_interrupt(&self) -> bool {
        self.agreed.max(if self.group.is_none() { request() } else { NONE }) == INTERRUPT
    }

    /// Requests another job and returns the exit code for it: [`REQUEUE_CODE`]. Call it when the state is saved,
    /// then exit with that code.
    ///
    /// `rushlight run` and the scripts of `rushlight job` act on the code. A program started directly by `srun`
    /// has no such parent: its rank 0 calls `scontrol requeue`.
    pub fn requeue(&self) -> i32 {
        if self.is_interrupt() {
            return 128 + libc::SIGINT;
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let has_launcher = variable("TORCHELASTIC_RUN_ID").is_some();
        if let Some(job) = variable("SLURM_JOB_ID").filter(|_| self.is_first && !has_launcher) {
            let asked = std::process::Command::new("scontrol").args(["requeue", &job]).status();
            if !asked.as_ref().is_ok_and(|status| status.success()) {
                let why = asked.map_or_else(|e| e.to_string(), |status| status.to_string());
                rushlight_core::warn!("scontrol requeue {job} failed ({why}); submit the job again to continue");
            }
        }
        REQUEUE_CODE
    }
}

impl Drop for Preemption {
    fn drop(&mut self) {
        if self.owns_interrupt {
            // SAFETY: the default action needs no handler.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        }
    }
}

fn install(signals: &[(libc::c_int, libc::c_int)]) -> Result<()> {
    for &(signal, flags) in signals {
        // SAFETY: the structure is plain data, and the handler only stores to an atomic.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
            // Restarts interrupted system calls.
            action.sa_flags = libc::SA_RESTART | flags;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(Error::io(format!("Preemption: no handler for signals: {}", std::io::Error::last_os_error())));
        }
    }
    Ok(())
}
