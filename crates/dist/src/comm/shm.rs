//! Shared memory of the ranks on one node, used in rounds.
//!
//! Each rank has [`DEPTH`] slots. In round `t` it writes to slot `t % DEPTH`, publishes its flag, and reads the slots
//! of others whose flags have reached `t`. A collective may publish one round ahead of its reads, so a rank that
//! has published `t - 2` has read all it needs of round `t - 4`: a rank enters round `t`, and writes to its slot again,
//! when all flags have reached `t - 2`.
//!
//! Each round carries a signature of its collective. A rank compares signatures when it reads a slot; for ranks whose
//! slots it does not read, at most two rounds later.

use super::abort::Limit;
use super::reduce::Span;
use super::signature::Signature;
use rushlight_core::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Bytes of a slot's input half and of its result half. The slots of two ranks fit a
/// core's cache.
pub(crate) const SLOT: usize = 128 << 10;
/// Slots of a rank.
const DEPTH: u32 = 4;
/// Maximum number of rounds a rank may be ahead of the slowest.
const LEAD: u32 = 2;
/// First bytes of a segment: a random value by which a rank recognises the right segment.
const HEADER: usize = 4096;
/// How long to spin on a flag before waiting in the kernel, if every rank has its own core.
const SPIN: Duration = Duration::from_micros(60);
/// The same for a background thread, which should leave the core to the program.
const SPIN_IN_BACKGROUND: Duration = Duration::from_micros(3);
/// Checks of a flag between checks of the clock.
const LOOKS: u32 = 32;
/// Number of yields before waiting in the kernel, if ranks share cores.
const YIELDS: u32 = 8;
/// Interval at which a wait in the kernel checks for abort and deadline.
const SLICE: Duration = Duration::from_millis(20);

/// A rank's state, visible to the other ranks of its node.
#[repr(C, align(128))]
struct Control {
    /// The round it has published.
    flag: AtomicU32,
    /// Number of threads that wait in the kernel for it.
    sleepers: AtomicU32,
    /// The core on which it published.
    core: AtomicU32,
    /// The cores it may run on.
    cores: Cores,
    /// Signature of its collective, by round.
    signatures: [Signature; DEPTH as usize],
}

/// A set of cores, a bit for each.
type Cores = [u64; 16];

/// The core that the calling thread currently runs on.
fn current_core() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::sched_getcpu() as u32 }
}

/// The cores that the calling thread may run on; empty if the kernel does not report them.
fn own_cores() -> Cores {
    let mut cores = [0; 16];
    // SAFETY: as many bytes as said, to write to.
    unsafe { libc::sched_getaffinity(0, size_of::<Cores>(), cores.as_mut_ptr().cast()) };
    cores
}

/// A mapping of the segment.
struct Mapping {
    base: *mut u8,
    len: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// One rank's view of the segment of its node.
pub(crate) struct NodeSegment {
    mapping: Mapping,
    /// This rank's index on the node, and the number of ranks there.
    pub(crate) index: usize,
    pub(crate) count: usize,
    /// Ranks in the group, for messages.
    ranks: Vec<usize>,
    round: u32,
    /// The last round in which each rank is known to have called the same collective as this one.
    compared: Vec<u32>,
    /// Whether ranks share cores.
    crowded: bool,
    /// The creator's descriptor, open until all have opened it through /proc.
    _file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to this value; access to it is synchronised by the flags.
unsafe impl Send for NodeSegment {}

fn segment_bytes(count: usize) -> usize {
    HEADER + count * size_of::<Control>() + count * DEPTH as usize * 2 * SLOT
}

impl NodeSegment {
    /// Creates a segment; returns it with the path by which other processes of this user open it.
    pub(crate) fn create(cookie: &[u8; 32], index: usize, ranks: &[usize]) -> Result<(Self, String)> {
        let len = segment_bytes(ranks.len());
        // SAFETY: the name ends with a zero; a new descriptor or -1 comes back.
        let fd = unsafe { libc::memfd_create(c"rushlight".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let mapping = map(&file, len)?;
        // SAFETY: the mapping is longer than the cookie and nobody else knows of it yet.
        unsafe { std::ptr::copy_nonoverlapping(cookie.as_ptr(), mapping.base, 32) };
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok((Self::new(mapping, index, ranks, Some(file)), path))
    }

    /// Opens another rank's segment.
    pub(crate) fn open(path: &str, cookie: &[u8; 32], index: usize, ranks: &[usize]) -> Result<Self> {
        let len = segment_bytes(ranks.len());
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != len as u64 {
            return Err(Error::io(format!("{path} is not the segment of this group")));
        }
        let mapping = map(&file.into(), len)?;
        // SAFETY: the mapping is longer than that, and these bytes do not change after the segment's path is known.
        let found = unsafe { std::slice::from_raw_parts(mapping.base, 32) };
        if !crate::store::auth::equal(found, cookie) {
            return Err(Error::io(format!("{path} is not the segment of this group")));
        }
        Ok(Self::new(mapping, index, ranks, None))
    }

    fn new(mapping: Mapping, index: usize, ranks: &[usize], file: Option<OwnedFd>) -> Self {
        let count = ranks.len();
        let compared = vec![0; count];
        let shared =
            Self { mapping, index, count, ranks: ranks.to_vec(), round: 0, compared, crowded: true, _file: file };
        // SAFETY: within the mapping; others read it in their first round, when all have the segment open.
        unsafe { (&raw mut (*shared.control(index)).cores).write(own_cores()) };
        shared
    }

    /// Whether there are fewer cores than ranks. All ranks have opened the segment.
    fn is_crowded(&self) -> bool {
        let mut all = [0u64; 16];
        for index in 0..self.count {
            // SAFETY: within the mapping, and not written any more.
            let cores = unsafe { (&raw const (*self.control(index)).cores).read() };
            all.iter_mut().zip(cores).for_each(|(all, cores)| *all |= cores);
        }
        let cores = all.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        // A quota of processor time counts as well, if it is less than the cores.
        let own: u32 = own_cores().iter().map(|word| word.count_ones()).sum();
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        cores < self.count || allowed < (own as usize).min(self.count)
    }

    fn control(&self, index: usize) -> *mut Control {
        debug_assert!(index < self.count);
        self.mapping.base.wrapping_add(HEADER + index * size_of::<Control>()).cast()
    }

    fn flag(&self, index: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned (the header is whole pages), and only used as an atomic.
        unsafe { &(*self.control(index)).flag }
    }

    fn sleepers(&self, index: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &(*self.control(index)).sleepers }
    }

    fn core(&self, index: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &(*self.control(index)).core }
    }

    /// Slot `index` of this round or an earlier one; `made` is its second half.
    pub(crate) fn slot(&self, index: usize, back: u32, made: bool) -> Span {
        let place = (self.round.wrapping_sub(back) % DEPTH) as usize;
        let slot = (index * DEPTH as usize + place) * 2 + made as usize;
        let offset = HEADER + self.count * size_of::<Control>() + slot * SLOT;
        Span { ptr: self.mapping.base.wrapping_add(offset), len: SLOT }
    }

    /// Enters the next round: this rank's slot may be written.
    pub(crate) fn begin(&mut self, signature: &Signature, limit: &Limit) -> Result<()> {
        let next = self.round.wrapping_add(1);
        if self.round == 0 {
            self.crowded = self.is_crowded();
        }
        for other in self.others() {
            // Before the first rounds there are none, and the flags start beyond them.
            self.wait_for(other, next.wrapping_sub(LEAD), limit)?;
            self.compare(other, next.wrapping_sub(LEAD))?;
        }
        self.round = next;
        let own = self.control(self.index);
        // SAFETY: only this rank writes here; others read it once the flag says that it is whole, and have compared
        // the one that was here before.
        unsafe { (&raw mut (*own).signatures[(self.round % DEPTH) as usize]).write(*signature) };
        Ok(())
    }

    /// Publishes this rank's slot.
    pub(crate) fn publish(&self) {
        let flag = self.flag(self.index);
        self.core(self.index).store(current_core(), Ordering::Relaxed);
        flag.store(self.round, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers(self.index).load(Ordering::Relaxed) > 0 {
            // SAFETY: the flag is a futex word within the mapping.
            unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// Waits until another rank publishes its slot of this or an earlier round, and compares its signature
    /// with this rank's.
    pub(crate) fn wait(&mut self, other: usize, back: u32, limit: &Limit) -> Result<()> {
        let round = self.round.wrapping_sub(back);
        self.wait_for(other, round, limit)?;
        self.compare(other, round)
    }

    /// Compares another rank's signatures from the last compared round up to a published one.
    fn compare(&mut self, other: usize, round: u32) -> Result<()> {
        if reached(self.compared[other], round) {
            return Ok(());
        }
        let first = self.compared[other].wrapping_add(1);
        for round in (0..=round.wrapping_sub(first)).map(|i| first.wrapping_add(i)) {
            if !self.signature(other, round).matches(&self.signature(self.index, round)) {
                return Err(self.mismatch(round));
            }
        }
        self.compared[other] = round;
        Ok(())
    }

    fn mismatch(&self, round: u32) -> Error {
        let reached = |&index: &usize| reached(self.flag(index).load(Ordering::Acquire), round);
        let describe =
            |index: usize| format!("rank {} called {}", self.ranks[index], self.signature(index, round).text());
        let found: Vec<String> = (0..self.count).filter(reached).map(describe).collect();
        Error::value(format!("the ranks called different collectives: {}", found.join("; ")))
    }

    /// [`NodeSegment::wait`] for all others.
    pub(crate) fn wait_all(&mut self, limit: &Limit) -> Result<()> {
        self.others().try_for_each(|other| self.wait(other, 0, limit))
    }

    fn signature(&self, index: usize, round: u32) -> Signature {
        // SAFETY: within the mapping; plain bytes of which any value is valid. Its writer is done with it, as the
        // flag says.
        unsafe { (&raw const (*self.control(index)).signatures[(round % DEPTH) as usize]).read_volatile() }
    }

    fn wait_for(&self, other: usize, round: u32, limit: &Limit) -> Result<()> {
        let flag = self.flag(other);
        if reached(flag.load(Ordering::Acquire), round) || self.watch(other, round, limit.background) {
            return Ok(());
        }
        loop {
            // Checked before the flag is read: a rank that left has published before.
            let departed = limit.abort.has_departed(self.ranks[other]);
            let seen = flag.load(Ordering::Acquire);
            if reached(seen, round) {
                return Ok(());
            }
            limit.check(|| self.missing(round))?;
            if departed {
                return Err(Error::io(format!("rank {} has left the job", self.ranks[other])));
            }
            let slice = libc::timespec { tv_sec: 0, tv_nsec: SLICE.as_nanos() as i64 };
            self.sleepers(other).fetch_add(1, Ordering::SeqCst);
            // A flag that is published after this line wakes the sleeper, or the kernel sees that the flag has changed.
            fence(Ordering::SeqCst);
            if flag.load(Ordering::Acquire) == seen {
                // SAFETY: the flag is a futex word within the mapping; the time lives through the call.
                unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAIT, seen, &raw const slice) };
            }
            self.sleepers(other).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Polls a rank's flag for a while in user space. Returns whether it has reached a round.
    fn watch(&self, other: usize, round: u32, background: bool) -> bool {
        let flag = self.flag(other);
        let look = || {
            std::hint::spin_loop();
            reached(flag.load(Ordering::Acquire), round)
        };
        if self.crowded {
            // The other rank may need this core.
            return (0..YIELDS).any(|_| {
                (0..LOOKS).any(|_| look()) || {
                    std::thread::yield_now();
                    look()
                }
            });
        }
        let patience = if background { SPIN_IN_BACKGROUND } else { SPIN };
        let start = Instant::now();
        loop {
            if (0..LOOKS).any(|_| look()) {
                return true;
            }
            if start.elapsed() > patience {
                return false;
            }
            // Other programs may have pushed both ranks to one core, and the other waits for it. Yielding instead of
            // sleeping lets the kernel see that both are runnable and separate them.
            if self.core(other).load(Ordering::Relaxed) == current_core() {
                std::thread::yield_now();
            }
        }
    }

    /// The ranks that have not reached a round, and their last collectives.
    fn missing(&self, round: u32) -> String {
        let late: Vec<String> = (0..self.count)
            .map(|i| (i, self.flag(i).load(Ordering::Acquire)))
            .filter(|&(i, flag)| i != self.index && !reached(flag, round))
            .map(|(i, flag)| {
                let last = if flag == 0 { "nothing yet".into() } else { self.signature(i, flag).text() };
                format!("rank {} (its last: {last})", self.ranks[i])
            })
            .collect();
        late.join(", ")
    }
}

/// Whether a flag has reached a round; both wrap around.
fn reached(flag: u32, round: u32) -> bool {
    flag.wrapping_sub(round) as i32 >= 0
}

fn map(file: &OwnedFd, len: usize) -> Result<Mapping> {
    // SAFETY: a new mapping of an open file at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(Mapping { base: base.cast(), len })
}
