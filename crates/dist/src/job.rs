//! State shared by the groups of a process, and the propagation of failures between ranks.
//!
//! One key of the store ends the job: every rank reports the first reason written there. A rank that detects a failure
//! writes it; the store writes it for a rank whose connection ends unexpectedly. A thread of each rank waits for that
//! key. It also answers a rank that times out and queries the others' positions.

use crate::comm::{Abort, Endpoint, Peer};
use crate::group::FlightRecord;
use crate::launch::Environment;
use crate::mpi::Runtime;
use crate::store::{Store, TcpStore};
use rushlight_core::sync::lock;
use rushlight_core::{ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// The key that ends the job.
const ABORT: &str = "abort";
/// Set when one of the next two keys has changed.
const NEWS: &str = "news";
/// Ranks that have left cleanly.
const DEPARTED: &str = "departed";
/// Set when a rank requests the others' positions.
const ROLL_CALL: &str = "roll-call";

pub(crate) struct Job {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) abort: Abort,
    /// `None` in a world of one process.
    pub(crate) network: Option<Network>,
    /// MPI and the communicator of all ranks, if that is the engine.
    pub(crate) mpi: Option<(Arc<Runtime>, usize)>,
    closing: AtomicBool,
    /// Whether tensors on accelerators stay there.
    pub(crate) devices: bool,
    /// Number of groups made so far.
    pub(crate) groups: AtomicU64,
    records: Mutex<Vec<Weak<Mutex<FlightRecord>>>>,
}

pub(crate) struct Network {
    pub(crate) store: Arc<TcpStore>,
    /// A separate connection for reporting failures: a call may be blocking the first. Its end marks this
    /// rank's end.
    pub(crate) alarm: TcpStore,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) peers: Vec<Peer>,
    /// Each rank's node, as a number.
    pub(crate) nodes: Vec<usize>,
}

impl Job {
    pub(crate) fn new(rank: usize, size: usize, network: Option<Network>) -> Self {
        Self {
            mpi: None,
            rank,
            size,
            abort: Abort::default(),
            network,
            closing: AtomicBool::new(false),
            devices: true,
            groups: AtomicU64::new(0),
            records: Mutex::default(),
        }
    }

    /// Sets whether tensors on accelerators stay there.
    pub(crate) fn with_devices(mut self, devices: bool) -> Self {
        self.devices = devices;
        self
    }

    /// Registers a group's record for answers to roll calls.
    pub(crate) fn register(&self, record: &Arc<Mutex<FlightRecord>>) {
        let mut records = lock(&self.records);
        records.retain(|r| r.strong_count() > 0);
        records.push(Arc::downgrade(record));
    }

    /// This rank's position: for each group its name and the number and description of its last collective.
    fn whereabouts(&self) -> String {
        let records = lock(&self.records);
        let mut text = String::new();
        for record in records.iter().filter_map(Weak::upgrade) {
            let record = lock(&record);
            let (sequence, what) =
                record.entries.back().map_or((0, "nothing yet"), |e| (e.sequence, e.collective.as_str()));
            text += &format!("{}\t{sequence}\t{what}\n", record.group);
        }
        text
    }

    /// Asks all ranks of a group for their positions. Returns those that have not reached collective `sequence`, in
    /// words.
    pub(crate) fn roll_call(&self, group: &str, ranks: &[usize], sequence: u64) -> Option<String> {
        let network = self.network.as_ref()?;
        network.alarm.set(ROLL_CALL, b"").ok()?;
        network.alarm.set(NEWS, b"").ok()?;
        let patience = Instant::now() + self.interval() * 4;
        let mut late = Vec::new();
        for &rank in ranks.iter().filter(|&&rank| rank != self.rank) {
            let key = format!("here/{rank}");
            let left = patience.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if network.alarm.wait_for(&[&key], left).is_err() {
                late.push(format!("rank {rank} (does not answer: stopped, or its machine is gone)"));
                continue;
            }
            let text = String::from_utf8_lossy(&network.alarm.get(&key).ok()?).into_owned();
            let line =
                text.lines().map(|l| l.splitn(3, '\t').collect::<Vec<_>>()).find(|l| l.len() == 3 && l[0] == group);
            match line {
                Some(line) if line[1].parse::<u64>().is_ok_and(|n| n >= sequence) => {}
                Some(line) => late.push(format!("rank {rank} (its last: collective {}, {})", line[1], line[2])),
                None => late.push(format!("rank {rank} (has not made this group)")),
            }
        }
        (!late.is_empty()).then(|| late.join(", "))
    }

    /// Ends the job on all ranks, and returns the reason that they all see: the first.
    pub(crate) fn fail(&self, reason: &str, kind: ErrorKind) -> String {
        if let Err(e) = self.abort.check() {
            return e.to_string();
        }
        if kind == ErrorKind::Io && (reason.contains("closed its connection") || reason.starts_with("MPI_")) {
            // A closed connection, or an error of MPI, is often the first sign of a death. The store knows which rank
            // died.
            let patience = Instant::now() + Duration::from_secs(2);
            while Instant::now() < patience {
                if let Err(e) = self.abort.check() {
                    return e.to_string();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let mut first = format!("rank {}: {reason}", self.rank);
        if let Some(network) = &self.network
            && let Ok(told) = network.alarm.compare_set(ABORT, b"", first.as_bytes())
        {
            first = String::from_utf8_lossy(&told).into_owned();
        }
        self.abort.raise(&first);
        first
    }

    /// Writes the last collectives of all groups to the path of RUSHLIGHT_FLIGHT_RECORD: this prefix, the rank and
    /// `.json`.
    pub(crate) fn write_records(&self) {
        let Some(prefix) = std::env::var("RUSHLIGHT_FLIGHT_RECORD").ok().filter(|prefix| !prefix.is_empty()) else {
            return;
        };
        let records = lock(&self.records);
        let json = |record: Arc<Mutex<FlightRecord>>| lock(&record).to_json();
        let groups: Vec<serde_json::Value> = records.iter().filter_map(Weak::upgrade).map(json).collect();
        let reason = self.abort.check().err().map(|e| e.to_string());
        let text = serde_json::json!({ "version": 1, "rank": self.rank, "reason": reason, "groups": groups });
        let path = format!("{prefix}{}.json", self.rank);
        if let Err(e) = std::fs::write(&path, format!("{text:#}\n")) {
            rushlight_core::warn!("the flight record cannot be written to {path}: {e}");
        }
    }

    /// Polling interval of the watching thread: longer in large jobs, to spare the store.
    fn interval(&self) -> Duration {
        Duration::from_millis(250 + self.size as u64 / 8)
    }

    /// Starts the thread that learns of other ranks' failures.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<()> {
        let Some(network) = &self.network else { return Ok(()) };
        let watcher = network.store.another()?;
        let env = Environment::current();
        let epitaph = format!("rank {} died (process {} on {})", self.rank, std::process::id(), env.hostname());
        network.alarm.lease(ABORT, epitaph.as_bytes())?;
        let interval = self.interval();
        let weak = Arc::downgrade(self);
        std::thread::Builder::new().name("rushlight-watch".into()).spawn(move || {
            let mut answered = false;
            loop {
                // A failure wakes it at once; the rest is polled.
                let reason = watcher.wait_for(&[ABORT], interval).and_then(|()| watcher.get(ABORT));
                let Some(job) = weak.upgrade().filter(|job| !job.closing.load(Relaxed)) else { return };
                match reason {
                    Ok(reason) => {
                        job.abort.raise(&String::from_utf8_lossy(&reason));
                        return job.write_records();
                    }
                    Err(e) if e.kind() == ErrorKind::Timeout => job.read_news(&watcher, &mut answered),
                    Err(e) if e.to_string().contains("no answer") => {
                        return job.abort.raise(&format!("rank 0, which holds the job's store, does not answer ({e})"));
                    }
                    Err(_) => return job.abort.raise("rank 0, which holds the job's store, died or cannot be reached"),
                }
            }
        })?;
        Ok(())
    }

    fn read_news(&self, store: &TcpStore, answered: &mut bool) {
        let has = |key: &str| store.check(&[key]).unwrap_or(false);
        if !has(NEWS) {
            return;
        }
        if !*answered && has(ROLL_CALL) {
            *answered = store.set(&format!("here/{}", self.rank), self.whereabouts().as_bytes()).is_ok();
        }
        if has(DEPARTED)
            && let Ok(list) = store.get(DEPARTED)
        {
            self.abort.depart(String::from_utf8_lossy(&list).split(',').filter_map(|rank| rank.parse().ok()));
        }
    }

    /// Waits until all ranks have left, or have had time to read why the job ended: a rank that dies meanwhile never
    /// leaves.
    fn see_others_off(&self, network: &Network) {
        let reading = Duration::from_secs(2);
        let mut failed = self.abort.is_raised();
        let mut deadline = Instant::now() + if failed { reading } else { network.store.timeout() };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match network.store.wait_for(&["all-left"], left.min(self.interval())) {
                Err(e) if e.kind() == ErrorKind::Timeout && !left.is_zero() => {}
                // All have left, time is up, or the store is gone.
                _ => return,
            }
            if !failed && network.alarm.check(&[ABORT]).unwrap_or(true) {
                failed = true;
                deadline = deadline.min(Instant::now() + reading);
            }
        }
    }

    /// Leaves cleanly. Rank 0, which holds the store, stays until the others have left, or have had time to read why
    /// the job ended.
    pub(crate) fn leave(&self) {
        let Some(network) = &self.network else { return };
        self.closing.store(true, Relaxed);
        if std::thread::panicking() {
            // Others may be waiting for this rank: tell them that it has left.
            self.fail("it panicked", ErrorKind::Value);
        }
        // Failures are ignored: the store is gone.
        let _ = network.alarm.append(DEPARTED, format!("{},", self.rank).as_bytes());
        let _ = network.alarm.set(NEWS, b"");
        let _ = network.alarm.release();
        if network.alarm.add("left", 1).is_ok_and(|n| n as usize == self.size) {
            let _ = network.alarm.set("all-left", b"");
        }
        if self.rank == 0 {
            self.see_others_off(network);
            // The program may keep groups alive; the port must be freed.
            if let Some(server) = network.store.server() {
                server.stop();
            }
        }
    }
}
