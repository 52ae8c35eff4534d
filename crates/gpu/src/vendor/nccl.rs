//! NCCL's interface, which RCCL shares: the table of functions and a communicator over it.
//!
//! A vendor's crate opens the library by its own name ([`Nccl::open`]) and returns it from
//! [`Libraries::collectives`](crate::vendor::driver::Libraries::collectives).

use crate::vendor::driver::Handle;
use crate::vendor::library::{Search, triple};
use rushlight_core::backend::ReduceOp;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// `ncclUniqueId`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

type Comm = *mut c_void;
type Buffer = *mut c_void;

/// Declares the table and opens it.
macro_rules! table {
    ($($name:ident = $symbol:literal ($($arg:ty),*) -> $ret:ty;)*) => {
        /// A library with NCCL's functions.
        pub struct Nccl {
            /// Where the library was found.
            pub path: String,
            /// Its name.
            label: &'static str,
            $($name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            _library: libloading::Library,
        }

        impl Nccl {
            /// Opens the library: its short name ("NCCL"), search path, file names, and the remedy if it is missing.
            pub fn open(search: &Search, label: &'static str, names: &[&str], remedy: &str) -> Result<Self> {
                let opened = search.open(label, names, remedy)?;
                $(
                    // SAFETY: the signature is the one that NCCL documents for this symbol; RCCL has the same.
                    let $name = unsafe { opened.library.get::<unsafe extern "C" fn($($arg),*) -> $ret>($symbol) }
                        .map(|symbol| *symbol)
                        .map_err(|e| Error::device(format!(
                            "{label} ({}) lacks {}: {e}; version 2.10 or newer is needed",
                            opened.path,
                            String::from_utf8_lossy($symbol),
                        )))?;
                )*
                Ok(Self { path: opened.path, label, $($name,)* _library: opened.library })
            }
        }
    };
}

table! {
    get_version = b"ncclGetVersion" (*mut c_int) -> c_int;
    get_error_string = b"ncclGetErrorString" (c_int) -> *const c_char;
    get_unique_id = b"ncclGetUniqueId" (*mut UniqueId) -> c_int;
    comm_init_rank = b"ncclCommInitRank" (*mut Comm, c_int, UniqueId, c_int) -> c_int;
    comm_destroy = b"ncclCommDestroy" (Comm) -> c_int;
    comm_abort = b"ncclCommAbort" (Comm) -> c_int;
    comm_async_error = b"ncclCommGetAsyncError" (Comm, *mut c_int) -> c_int;
    group_start = b"ncclGroupStart" () -> c_int;
    group_end = b"ncclGroupEnd" () -> c_int;
    all_reduce = b"ncclAllReduce" (Buffer, Buffer, usize, c_int, c_int, Comm, Handle) -> c_int;
    broadcast = b"ncclBroadcast" (Buffer, Buffer, usize, c_int, c_int, Comm, Handle) -> c_int;
    reduce = b"ncclReduce" (Buffer, Buffer, usize, c_int, c_int, c_int, Comm, Handle) -> c_int;
    all_gather = b"ncclAllGather" (Buffer, Buffer, usize, c_int, Comm, Handle) -> c_int;
    reduce_scatter = b"ncclReduceScatter" (Buffer, Buffer, usize, c_int, c_int, Comm, Handle) -> c_int;
    send = b"ncclSend" (Buffer, usize, c_int, c_int, Comm, Handle) -> c_int;
    recv = b"ncclRecv" (Buffer, usize, c_int, c_int, Comm, Handle) -> c_int;
}

/// `ncclInProgress`: a call that continues in the background.
const IN_PROGRESS: c_int = 7;
/// `ncclUint8`.
const BYTES: c_int = 1;

impl Nccl {
    /// The version, such as 2.27.7.
    pub fn version(&self) -> Result<String> {
        let mut number = 0;
        // SAFETY: an integer to write to.
        self.check("ncclGetVersion", unsafe { (self.get_version)(&mut number) })?;
        Ok(triple(number))
    }

    /// Name and version.
    pub fn title(&self) -> Result<String> {
        Ok(format!("{} {}", self.label, self.version()?))
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: the library returns a constant string for every code.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(code)) }.to_string_lossy().into_owned();
        Err(Error::device(format!(
            "{}: {call} failed with error {code}: {text} (NCCL_DEBUG=WARN says more)",
            self.label
        )))
    }

    /// Creates the identifier of a new communicator.
    pub fn unique_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: 128 bytes to write to.
        self.check("ncclGetUniqueId", unsafe { (self.get_unique_id)(&mut id) })?;
        Ok(id.0.to_vec())
    }

    /// Joins a communicator with the current device of the calling thread; waits for the other ranks.
    pub(crate) fn join(&'static self, id: &[u8], rank: usize, size: usize) -> Result<NcclComm> {
        let id = <[u8; 128]>::try_from(id)
            .map_err(|_| Error::value(format!("an identifier of {} has 128 bytes, not {}", self.label, id.len())))?;
        let mut comm = std::ptr::null_mut();
        // SAFETY: a handle to write to, and an identifier that another rank's library made.
        let code = unsafe { (self.comm_init_rank)(&mut comm, size as c_int, UniqueId(id), rank as c_int) };
        self.check("ncclCommInitRank", code)?;
        let (aborted, recorded) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(NcclComm { library: self, comm, size, rank, turn: Mutex::new(()), aborted, recorded })
    }
}

/// An operation with raw addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawOp {
    AllReduce { data: u64, count: usize, dtype: c_int, op: c_int },
    Broadcast { data: u64, bytes: usize, root: usize },
    Reduce { data: u64, count: usize, dtype: c_int, op: c_int, root: usize },
    AllGather { input: u64, output: u64, bytes: usize },
    ReduceScatter { input: u64, output: u64, count: usize, dtype: c_int, op: c_int },
    Send { data: u64, bytes: usize, peer: usize },
    Recv { data: u64, bytes: usize, peer: usize },
}

/// The library's constants of a dtype and a reduction; `None` if it has no such reduction.
pub(crate) fn reduction(dtype: DType, op: ReduceOp) -> Option<(c_int, c_int)> {
    let op = match op {
        ReduceOp::Sum => 0,
        ReduceOp::Product => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Mean => 4,
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => return None,
    };
    let dtype = match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        // As bytes of 0 and 1: a sum is "any", a product is "all".
        DType::Bool => return Some((BYTES, if matches!(op, 0 | 2) { 2 } else { 3 })),
        _ => return None,
    };
    Some((dtype, op))
}

/// A communicator of the library.
pub(crate) struct NcclComm {
    library: &'static Nccl,
    comm: Comm,
    pub(crate) size: usize,
    rank: usize,
    /// Held while operations are issued: the library allows one thread at a time.
    turn: Mutex<()>,
    aborted: AtomicBool,
    /// Whether a recorded step may contain its operations.
    recorded: AtomicBool,
}

// SAFETY: the library takes a communicator from any thread, one at a time; aborting and asking for errors at any time.
unsafe impl Send for NcclComm {}
// SAFETY: as above.
unsafe impl Sync for NcclComm {}

impl NcclComm {
    pub(crate) fn name(&self) -> String {
        self.library.title().unwrap_or_else(|_| self.library.label.into())
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    fn alive(&self) -> Result<()> {
        match self.aborted.load(Acquire) {
            true => Err(Error::device(format!("{}: the communicator was aborted", self.library.label))),
            false => Ok(()),
        }
    }

    /// Issues operations on a stream of the current device, as one group.
    ///
    /// # Safety
    /// The addresses are valid on the device until the stream has finished the operations.
    pub(crate) unsafe fn run(&self, ops: &[RawOp], stream: Handle, recording: bool) -> Result<()> {
        let _turn = lock(&self.turn);
        self.alive()?;
        self.recorded.fetch_or(recording, Relaxed);
        let library = self.library;
        // SAFETY: the caller's. A group that was started is ended whatever happens.
        unsafe {
            library.check("ncclGroupStart", (library.group_start)())?;
            let given = ops.iter().try_for_each(|op| self.give(op, stream));
            let ended = library.check("ncclGroupEnd", (library.group_end)());
            given.and(ended)
        }
    }

    /// # Safety
    /// As for [`run`](NcclComm::run).
    unsafe fn give(&self, op: &RawOp, stream: Handle) -> Result<()> {
        let (l, comm) = (self.library, self.comm);
        let at = |address: u64| address as Buffer;
        // SAFETY: the caller's.
        unsafe {
            match *op {
                RawOp::AllReduce { data, count, dtype, op } => {
                    l.check("ncclAllReduce", (l.all_reduce)(at(data), at(data), count, dtype, op, comm, stream))
                }
                RawOp::Broadcast { data, bytes, root } => l.check(
                    "ncclBroadcast",
                    (l.broadcast)(at(data), at(data), bytes, BYTES, root as c_int, comm, stream),
                ),
                RawOp::Reduce { data, count, dtype, op, root } => {
                    l.check("ncclReduce", (l.reduce)(at(data), at(data), count, dtype, op, root as c_int, comm, stream))
                }
                RawOp::AllGather { input, output, bytes } => {
                    l.check("ncclAllGather", (l.all_gather)(at(input), at(output), bytes, BYTES, comm, stream))
                }
                RawOp::ReduceScatter { input, output, count, dtype, op } => l.check(
                    "ncclReduceScatter",
                    (l.reduce_scatter)(at(input), at(output), count, dtype, op, comm, stream),
                ),
                RawOp::Send { data, bytes, peer } => {
                    l.check("ncclSend", (l.send)(at(data), bytes, BYTES, peer as c_int, comm, stream))
                }
                RawOp::Recv { data, bytes, peer } => {
                    l.check("ncclRecv", (l.recv)(at(data), bytes, BYTES, peer as c_int, comm, stream))
                }
            }
        }
    }

    /// The error of a background failure.
    pub(crate) fn error(&self) -> Result<()> {
        self.alive()?;
        let mut code = 0;
        // SAFETY: an integer to write to.
        self.library
            .check("ncclCommGetAsyncError", unsafe { (self.library.comm_async_error)(self.comm, &mut code) })?;
        self.library.check("a collective", code)
    }

    /// Aborts running operations.
    pub(crate) fn abort(&self) {
        if self.aborted.swap(true, AcqRel) {
            return;
        }
        // Gives a thread inside the library a moment to leave it. Aborting releases a stuck one.
        let patience = Instant::now() + Duration::from_secs(1);
        let _turn = loop {
            match self.turn.try_lock() {
                Ok(turn) => break Some(turn),
                Err(TryLockError::Poisoned(e)) => break Some(e.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > patience => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        // SAFETY: a communicator that nobody gives operations to any more.
        unsafe { (self.library.comm_abort)(self.comm) };
    }
}

impl Drop for NcclComm {
    fn drop(&mut self) {
        // The library would wait until recorded steps are dropped: such a communicator is leaked.
        if !self.aborted.load(Acquire) && !self.recorded.load(Relaxed) {
            // SAFETY: a communicator that nobody uses any more.
            unsafe { (self.library.comm_destroy)(self.comm) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_by_the_librarys_numbers() {
        assert_eq!(reduction(DType::BF16, ReduceOp::Mean), Some((9, 4)));
        assert_eq!(reduction(DType::Bool, ReduceOp::Sum), Some((BYTES, 2)));
        assert_eq!(reduction(DType::Bool, ReduceOp::Product), Some((BYTES, 3)));
        assert_eq!(reduction(DType::I16, ReduceOp::Sum), None);
        assert_eq!(reduction(DType::I32, ReduceOp::BitXor), None);
    }
}
