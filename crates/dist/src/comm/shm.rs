//! Shared memory of the ranks on one node, used in rounds.
//!
//! Each rank has two slots. In round `t` it writes to slot `t % 2`, publishes its flag, and reads the slots of others
//! whose flags have reached `t`. A rank enters round `t` when all flags have reached `t - 1`; whoever published `t -
//! 1` has read all it wanted of round `t - 2`, so the slot is free again. One wait per round is enough.

use super::abort::Limit;
use super::reduce::Span;
use super::signature::Signature;
use rushlight_core::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Bytes of a slot's part for what a rank has, and of its part for what it has made of it.
pub(crate) const SLOT: usize = 256 << 10;
/// First bytes of a segment: a random value, by which a rank knows that it has opened the right one.
const HEADER: usize = 4096;
/// How often a flag is looked at before the kernel is asked to wait: some ten microseconds.
const SPINS: u32 = 2000;
/// How long the kernel waits before abort and deadline are looked at again.
const SLICE: Duration = Duration::from_millis(20);

/// What a rank shows to the others of its node.
#[repr(C, align(128))]
struct Control {
    /// The round it has published.
    flag: AtomicU32,
    /// How many wait in the kernel for it.
    sleepers: AtomicU32,
    /// What it is doing, by the parity of the round.
    signatures: [Signature; 2],
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
pub(crate) struct Shared {
    mapping: Mapping,
    /// This rank among those of the node, and how many there are.
    pub(crate) index: usize,
    pub(crate) count: usize,
    /// Ranks in the group, for messages.
    ranks: Vec<usize>,
    round: u32,
    /// The creator's descriptor, open until all have opened it through /proc.
    _file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to this value; access to it is synchronised by the flags.
unsafe impl Send for Shared {}

fn segment_bytes(count: usize) -> usize {
    HEADER + count * size_of::<Control>() + count * 4 * SLOT
}

impl Shared {
    /// Makes a segment; returns it with the path by which others of this user open it.
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
        let shared = Self { mapping, index, count: ranks.len(), ranks: ranks.to_vec(), round: 0, _file: Some(file) };
        Ok((shared, path))
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
        Ok(Self { mapping, index, count: ranks.len(), ranks: ranks.to_vec(), round: 0, _file: None })
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

    /// Slot `index` of this round or the one before (`back` 0 or 1); `made` is its second half.
    pub(crate) fn slot(&self, index: usize, back: u32, made: bool) -> Span {
        let parity = (self.round.wrapping_sub(back) % 2) as usize;
        let offset = HEADER + self.count * size_of::<Control>() + ((index * 2 + parity) * 2 + made as usize) * SLOT;
        Span { ptr: self.mapping.base.wrapping_add(offset), len: SLOT }
    }

    /// Enters the next round: this rank's slot may be written.
    pub(crate) fn begin(&mut self, signature: &Signature, limit: &Limit) -> Result<()> {
        let previous = self.round;
        for other in 0..self.count {
            self.wait_for(other, previous, limit)?;
        }
        self.round = self.round.wrapping_add(1);
        let own = self.control(self.index);
        // SAFETY: only this rank writes here; others read it once the flag says that it is whole, and have read the
        // one of two rounds ago.
        unsafe { (&raw mut (*own).signatures[(self.round % 2) as usize]).write(*signature) };
        Ok(())
    }

    /// Shows this rank's slot to the others.
    pub(crate) fn publish(&self) {
        let flag = self.flag(self.index);
        flag.store(self.round, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers(self.index).load(Ordering::Relaxed) > 0 {
            // SAFETY: the flag is a futex word within the mapping.
            unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// Waits until another rank shows its slot of this round, and compares what it is doing with what this rank does.
    pub(crate) fn wait(&self, other: usize, signature: &Signature, limit: &Limit) -> Result<()> {
        self.wait_for(other, self.round, limit)?;
        let theirs = self.signature(other, self.round);
        if theirs.matches(signature) {
            return Ok(());
        }
        let mut found: Vec<String> = Vec::new();
        for index in 0..self.count {
            if reached(self.flag(index).load(Ordering::Acquire), self.round) {
                found.push(format!("rank {} called {}", self.ranks[index], self.signature(index, self.round).text()));
            }
        }
        Err(Error::value(format!("the ranks called different collectives: {}", found.join("; "))))
    }

    /// [`Shared::wait`] for all others.
    pub(crate) fn wait_all(&self, signature: &Signature, limit: &Limit) -> Result<()> {
        (0..self.count).filter(|&i| i != self.index).try_for_each(|i| self.wait(i, signature, limit))
    }

    fn signature(&self, index: usize, round: u32) -> Signature {
        // SAFETY: within the mapping; plain bytes of which any value is valid. Its writer is done with it, as the
        // flag says.
        unsafe { (&raw const (*self.control(index)).signatures[(round % 2) as usize]).read_volatile() }
    }

    fn wait_for(&self, other: usize, round: u32, limit: &Limit) -> Result<()> {
        let flag = self.flag(other);
        for _ in 0..SPINS {
            if reached(flag.load(Ordering::Acquire), round) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        loop {
            // Asked for before the flag is read: whoever left has published before.
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
            // A flag that is published after this line finds the sleeper, or the kernel finds the flag changed.
            fence(Ordering::SeqCst);
            if flag.load(Ordering::Acquire) == seen {
                // SAFETY: the flag is a futex word within the mapping; the time lives through the call.
                unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAIT, seen, &raw const slice) };
            }
            self.sleepers(other).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Who has not come to a round, and what they did last.
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

/// Whether a flag has come to a round; both count on past their largest value.
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
