//! Collectives over device memory that processes of one machine share: for several ranks on one GPU, which NCCL
//! refuses.
//!
//! Each rank has a region that all others open. A region holds flags, a *common* lane that any rank may read, and a
//! *private* lane for each other rank. A writer of a lane first waits for the credit of its readers and takes it; then
//! it sets a `full` flag at each reader. A reader waits for that flag, clears it, reads, and returns the credit. A rank
//! waits for flags in its own region only. Flags are set and cleared, never counted, so a recorded step can be replayed
//! any number of times, between others that are not recorded.
//!
//! If the driver supports it, the streams themselves wait for and write flags, so that a GPU shared by several
//! processes can switch to another one; otherwise kernels do.

use crate::comm::collectives::{Comm, Kept, MAX_RANKS, Transport, bytes};
use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use crate::vendor::driver::{DevicePtr, Handle};
use rushlight_core::backend::{DeviceComm, DeviceOp, MemoryOffer, ReduceOp};
use rushlight_core::{Error, Result, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// Bytes of the header before the lanes.
const HEADER: usize = 4096;
/// Bytes from one flag to the next.
const FLAG: usize = 16;
/// Bytes of the common lane and of a private one. Each piece of a collective waits for the GPU to switch between
/// processes, which takes about 0.3 ms.
const COMMON: usize = 8 << 20;
const PRIVATE: usize = 4 << 20;
/// Maximum flags of one kernel, as in `collective.cu`.
const FLAGS: usize = 64;
/// How long an abort waits for the device to become idle.
const PATIENCE: Duration = Duration::from_secs(5);

const _: () = assert!(4 * MAX_RANKS * FLAG <= HEADER && FLAGS <= 64);

/// The two kinds of lanes.
#[derive(Clone, Copy, PartialEq)]
enum Lane {
    Common,
    Private,
}

/// A flag of a region, for each other rank.
#[derive(Clone, Copy)]
enum Flag {
    /// That rank has written data for this one.
    Full(Lane),
    /// That rank has read this one's data.
    Credit(Lane),
}

impl Flag {
    fn row(self) -> usize {
        match self {
            Flag::Full(lane) => lane as usize,
            Flag::Credit(lane) => 2 + lane as usize,
        }
    }
}

pub fn signal_defines() -> Defines {
    Defines::default().define("SIGNAL", 1)
}

/// One rank's end.
struct SharedMemory {
    gpu: &'static Gpu,
    rank: usize,
    /// The regions of all ranks, as mapped in this process. They stay open: freeing one would require
    /// that no other process uses it.
    regions: Vec<DevicePtr>,
    /// Whether streams write and wait for flags without a kernel.
    by_stream: bool,
    aborted: AtomicBool,
    /// The stream of the latest operations that are not recorded.
    stream: AtomicUsize,
    /// Flag that releases waiting kernels when the communicator is aborted.
    rescue: Handle,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

/// This rank's region, and the token with which others open it.
pub fn offer(gpu: &'static Gpu, rank: usize, size: usize) -> Result<MemoryOffer> {
    if size > MAX_RANKS {
        return Err(Error::unsupported(format!(
            "device memory is shared by at most {MAX_RANKS} ranks, not {size}; use the tcp engine"
        )));
    }
    gpu.enter()?;
    let total = HEADER + COMMON + size * PRIVATE;
    // Not from the allocator: only whole allocations can be shared.
    let full =
        || Error::out_of_memory(format!("{}: no memory to share with other ranks ({total} bytes)", gpu.device()));
    let region = gpu.driver.relaxed(|| gpu.driver.alloc(total))?.ok_or_else(full)?;
    let mut header = [0u8; HEADER];
    for (lane, peer) in [Lane::Common, Lane::Private].into_iter().flat_map(|l| (0..size).map(move |p| (l, p))) {
        let at = (Flag::Credit(lane).row() * MAX_RANKS + peer) * FLAG;
        header[at..at + 4].copy_from_slice(&1u32.to_ne_bytes());
    }
    let rescue = gpu.driver.relaxed(|| gpu.driver.stream_create(-1))?;
    // SAFETY: a region of ours, larger than the header, which is read before the call returns.
    let card = gpu.driver.relaxed(|| unsafe {
        gpu.driver.copy_to_device(region, header.as_ptr().cast(), HEADER, rescue)?;
        gpu.driver.stream_synchronize(rescue)?;
        gpu.driver.share_memory(region)
    })?;
    let (region, rescue) = (region as usize, rescue as usize);
    let accept = move |cards: &[Vec<u8>]| -> Result<Arc<dyn DeviceComm>> {
        gpu.enter()?;
        let open = |(r, card): (usize, &Vec<u8>)| match r == rank {
            true => Ok(region as DevicePtr),
            false => gpu.driver.relaxed(|| gpu.driver.open_shared(card)).map_err(|e| {
                e.within(&format!("device memory of rank {r}; processes in different containers may not share it"))
            }),
        };
        let regions = cards.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        let by_kernel = std::env::var_os("RUSHLIGHT_SHARED_FLAGS").is_some_and(|v| v == "kernel");
        let memory = SharedMemory {
            gpu,
            rank,
            regions,
            by_stream: gpu.driver.has_stream_values() && !by_kernel,
            aborted: AtomicBool::new(false),
            stream: AtomicUsize::new(gpu.main_lane().stream as usize),
            rescue: rescue as Handle,
        };
        Ok(Arc::new(Comm::new(gpu, Box::new(memory))?))
    };
    Ok(MemoryOffer { card, accept: Box::new(accept) })
}

impl SharedMemory {
    fn size(&self) -> usize {
        self.regions.len()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (size, rank) = (self.size(), self.rank);
        (0..size).filter(move |&r| r != rank)
    }

    /// Address of the flag for `peer` in the region of `owner`.
    fn flag(&self, owner: usize, flag: Flag, peer: usize) -> DevicePtr {
        self.regions[owner] + ((flag.row() * MAX_RANKS + peer) * FLAG) as u64
    }

    /// Address of the lane in which `writer` puts data for `reader`.
    fn lane(&self, lane: Lane, writer: usize, reader: usize) -> DevicePtr {
        let at = match lane {
            Lane::Common => HEADER,
            Lane::Private => HEADER + COMMON + reader * PRIVATE,
        };
        self.regions[writer] + at as u64
    }

    /// Makes the stream wait until flags of this rank's region are set, and clears the marked ones.
    fn wait(&self, flags: &[(DevicePtr, bool)]) -> Result<()> {
        if self.by_stream {
            let flags = flags.to_vec();
            return self.gpu.submit(move |gpu, stream| {
                // SAFETY: addresses of flags in a region of ours.
                unsafe {
                    flags.iter().try_for_each(|&(at, _)| gpu.driver.stream_wait_value(stream, at, 1))?;
                    let mut lowered = flags.iter().filter(|flag| flag.1);
                    lowered.try_for_each(|&(at, _)| gpu.driver.stream_write_value(stream, at, 0))
                }
            });
        }
        self.signal("await_flags", flags)
    }

    /// Sets flags in others' regions after the stream's work so far.
    fn raise(&self, flags: &[DevicePtr]) -> Result<()> {
        if self.by_stream {
            let flags = flags.to_vec();
            return self.gpu.submit(move |gpu, stream| {
                // SAFETY: addresses of flags in regions that are open.
                flags.iter().try_for_each(|&at| unsafe { gpu.driver.stream_write_value(stream, at, 1) })
            });
        }
        self.signal("raise_flags", &flags.iter().map(|&at| (at, false)).collect::<Vec<_>>())
    }

    fn signal(&self, entry: &'static str, flags: &[(DevicePtr, bool)]) -> Result<()> {
        #[repr(C)]
        struct Flags {
            count: u32,
            pad: u32,
            reset: u64,
            at: [u64; FLAGS],
        }
        let function = self.gpu.function(Key::new(Family::Collective, entry, []), signal_defines)?;
        for part in flags.chunks(FLAGS) {
            let mut list = Flags { count: part.len() as u32, pad: 0, reset: 0, at: [0; FLAGS] };
            for (i, &(at, lower)) in part.iter().enumerate() {
                list.at[i] = at;
                list.reset |= (lower as u64) << i;
            }
            launch!(self.gpu, function, Grid::line(1, FLAGS)?.spread(); list)?;
        }
        Ok(())
    }

    /// Writes to the common lane for a set of readers.
    fn put_common(&self, readers: &[usize], from: DevicePtr, len: usize) -> Result<()> {
        // All ranks must have read the previous data, including those that receive nothing now.
        let credits: Vec<_> = self
            .others()
            .map(|r| (self.flag(self.rank, Flag::Credit(Lane::Common), r), readers.contains(&r)))
            .collect();
        self.wait(&credits)?;
        self.gpu.copy_bytes(self.lane(Lane::Common, self.rank, 0), from, len)?;
        self.raise_full(Lane::Common, readers)
    }

    fn raise_full(&self, lane: Lane, readers: &[usize]) -> Result<()> {
        let full: Vec<_> = readers.iter().map(|&r| self.flag(r, Flag::Full(lane), self.rank)).collect();
        self.raise(&full)
    }

    /// Waits for data of a set of writers.
    fn wait_full(&self, lane: Lane, writers: &[usize]) -> Result<()> {
        let full: Vec<_> = writers.iter().map(|&w| (self.flag(self.rank, Flag::Full(lane), w), true)).collect();
        self.wait(&full)
    }

    /// Returns their credit to writers.
    fn release(&self, lane: Lane, writers: &[usize]) -> Result<()> {
        let credits: Vec<_> = writers.iter().map(|&w| self.flag(w, Flag::Credit(lane), self.rank)).collect();
        self.raise(&credits)
    }

    /// Combines every rank's data in place; on `root` only, if given.
    fn all_reduce(&self, data: View, op: ReduceOp, root: Option<usize>) -> Result<()> {
        let (whole, unit) = (bytes(data), data.dtype().size());
        let others: Vec<usize> = self.others().collect();
        let reads = root.is_none_or(|root| root == self.rank);
        let readers: Vec<usize> = others.iter().copied().filter(|&r| root.is_none_or(|root| root == r)).collect();
        for start in (0..whole).step_by(COMMON) {
            let (at, len) = (data.ptr() as u64 + start as u64, COMMON.min(whole - start));
            if !readers.is_empty() {
                self.put_common(&readers, at, len)?;
            }
            if reads && !others.is_empty() {
                self.wait_full(Lane::Common, &others)?;
                let from: Vec<u64> =
                    (0..self.size()).map(|r| if r == self.rank { at } else { self.lane(Lane::Common, r, 0) }).collect();
                self.gpu.combine(data.dtype(), op, &from, at, len / unit)?;
                self.release(Lane::Common, &others)?;
            }
        }
        Ok(())
    }

    fn broadcast(&self, at: DevicePtr, whole: usize, root: usize) -> Result<()> {
        let others: Vec<usize> = self.others().collect();
        for start in (0..whole).step_by(COMMON) {
            let (at, len) = (at + start as u64, COMMON.min(whole - start));
            if self.rank == root {
                self.put_common(&others, at, len)?;
            } else {
                self.wait_full(Lane::Common, &[root])?;
                self.gpu.copy_bytes(at, self.lane(Lane::Common, root, 0), len)?;
                self.release(Lane::Common, &[root])?;
            }
        }
        Ok(())
    }

    fn all_gather(&self, input: View, output: View) -> Result<()> {
        let part = bytes(input);
        let (from, to) = (input.ptr() as u64, output.ptr() as u64);
        let others: Vec<usize> = self.others().collect();
        self.gpu.copy_bytes(to + (self.rank * part) as u64, from, part)?;
        for start in (0..part).step_by(COMMON) {
            let len = COMMON.min(part - start);
            self.put_common(&others, from + start as u64, len)?;
            self.wait_full(Lane::Common, &others)?;
            for &r in &others {
                self.gpu.copy_bytes(to + (r * part + start) as u64, self.lane(Lane::Common, r, 0), len)?;
            }
            self.release(Lane::Common, &others)?;
        }
        Ok(())
    }

    fn put_private(&self, reader: usize, from: DevicePtr, len: usize) -> Result<()> {
        self.wait(&[(self.flag(self.rank, Flag::Credit(Lane::Private), reader), true)])?;
        self.gpu.copy_bytes(self.lane(Lane::Private, self.rank, reader), from, len)?;
        self.raise_full(Lane::Private, &[reader])
    }

    fn reduce_scatter(&self, input: View, output: View, op: ReduceOp) -> Result<()> {
        let (part, unit) = (bytes(output), output.dtype().size());
        let others: Vec<usize> = self.others().collect();
        for start in (0..part).step_by(PRIVATE) {
            let len = PRIVATE.min(part - start);
            let piece = |r: usize| input.ptr() as u64 + (r * part + start) as u64;
            for &r in &others {
                self.put_private(r, piece(r), len)?;
            }
            self.wait_full(Lane::Private, &others)?;
            let from: Vec<u64> = (0..self.size())
                .map(|r| if r == self.rank { piece(r) } else { self.lane(Lane::Private, r, self.rank) })
                .collect();
            self.gpu.combine(output.dtype(), op, &from, output.ptr() as u64 + start as u64, len / unit)?;
            self.release(Lane::Private, &others)?;
        }
        Ok(())
    }

    /// Sends and receives concurrently: in rounds, each of which moves one piece from and to every peer.
    fn exchange(&self, ops: &[DeviceOp]) -> Result<()> {
        let (mut sends, mut recvs) = (vec![Vec::new(); self.size()], vec![Vec::new(); self.size()]);
        for op in ops {
            let (data, list) = match *op {
                DeviceOp::Send { data, peer } => (data, sends.get_mut(peer)),
                DeviceOp::Recv { data, peer } => (data, recvs.get_mut(peer)),
                _ => continue,
            };
            let Some(list) = list else { return Err(Error::value("a message to a rank that is not in the group")) };
            let pieces = (0..bytes(data)).step_by(PRIVATE);
            list.extend(pieces.map(|s| (data.ptr() as u64 + s as u64, PRIVATE.min(bytes(data) - s))));
        }
        let waves = sends.iter().chain(&recvs).map(Vec::len).max().unwrap_or(0);
        for wave in 0..waves {
            for (peer, list) in sends.iter().enumerate() {
                if let Some(&(at, len)) = list.get(wave) {
                    self.put_private(peer, at, len)?;
                }
            }
            for (peer, list) in recvs.iter().enumerate() {
                if let Some(&(at, len)) = list.get(wave) {
                    self.wait_full(Lane::Private, &[peer])?;
                    self.gpu.copy_bytes(at, self.lane(Lane::Private, peer, self.rank), len)?;
                    self.release(Lane::Private, &[peer])?;
                }
            }
        }
        Ok(())
    }
}

impl Transport for SharedMemory {
    fn name(&self) -> String {
        "shared device memory".into()
    }

    fn run(&self, gpu: &'static Gpu, ops: &[DeviceOp]) -> Result<Kept> {
        self.error()?;
        let lane = gpu.lane();
        if !lane.recording {
            self.stream.store(lane.stream as usize, Release);
        }
        for op in ops {
            match *op {
                DeviceOp::AllReduce { data, op } => self.all_reduce(data, op, None)?,
                DeviceOp::Reduce { data, op, root } => self.all_reduce(data, op, Some(root))?,
                DeviceOp::Broadcast { data, root } => self.broadcast(data.ptr() as u64, bytes(data), root)?,
                DeviceOp::AllGather { input, output } => self.all_gather(input, output)?,
                DeviceOp::ReduceScatter { input, output, op } => self.reduce_scatter(input, output, op)?,
                DeviceOp::Send { .. } | DeviceOp::Recv { .. } => {}
            }
        }
        self.exchange(ops)?;
        Ok(Kept::new())
    }

    fn error(&self) -> Result<()> {
        match self.aborted.load(Acquire) {
            true => Err(Error::device("shared device memory: the communicator was aborted")),
            false => Ok(()),
        }
    }

    fn abort(&self) {
        if self.aborted.swap(true, AcqRel) {
            return;
        }
        // Sets all flags of this rank until nothing waits for one.
        let driver = self.gpu.driver;
        let mut flags = [0u8; 4 * MAX_RANKS * FLAG];
        flags.chunks_mut(FLAG).for_each(|flag| flag[..4].copy_from_slice(&1u32.to_ne_bytes()));
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            // SAFETY: a region and streams of ours.
            let idle = driver.relaxed(|| unsafe {
                let at = self.regions[self.rank];
                driver.copy_to_device(at, flags.as_ptr().cast(), flags.len(), self.rescue)?;
                driver.stream_synchronize(self.rescue)?;
                let own = driver.stream_query(self.stream.load(Acquire) as Handle)?;
                Ok::<_, Error>(own && driver.stream_query(self.gpu.main_lane().stream)?)
            });
            if idle.unwrap_or(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
