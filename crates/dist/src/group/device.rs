//! The engine for tensors on accelerators: collectives on a separate stream of the device.
//!
//! The vendor's library (NCCL, RCCL) moves data if every rank has its own device. Ranks of one machine that share a
//! device use shared device memory. Everything else (CPU tensors, objects, barriers)
//! goes to the engine `tcp`. The ranks also use it to choose, to exchange identifiers and to compare calls: a rank
//! that calls another collective is reported, where the library would only hang.

use super::lower::{Lowered, Op};
use super::{Collective, FlightRecord, HostGroup, ObjectSeal, Objects, ProcessGroup, Work};
use crate::job::Job;
use rushlight_core::backend::{Collectives, DeviceComm, DeviceWork};
use rushlight_core::sync::lock;
use rushlight_core::{Device, Error, ErrorKind, Result};
use rushlight_tensor::{Tensor, capture};
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// Interval at which the background thread checks for errors and timeouts.
const LOOK: Duration = Duration::from_millis(500);
/// The same while collectives are under way: their times in the record are as exact as this.
const LOOK_AT_WORK: Duration = Duration::from_millis(5);

/// A group whose ranks have accelerators.
pub(crate) struct DeviceGroup {
    host: HostGroup,
    /// Each rank's node.
    nodes: Vec<usize>,
    shared: Arc<DeviceComms>,
}

struct DeviceComms {
    job: Arc<Job>,
    timeout: Mutex<Duration>,
    /// The communicator of each device; `None` where tensors go through the host.
    comms: Mutex<Vec<(Device, Option<Arc<dyn DeviceComm>>)>>,
    /// Running collectives, in order.
    under_way: Mutex<VecDeque<UnderWay>>,
    pace: Arc<Pace>,
    record: Arc<Mutex<FlightRecord>>,
}

/// How often the background thread looks. It holds this alone while it waits, not the communicators.
#[derive(Default)]
struct Pace {
    /// Whether collectives are under way.
    busy: Mutex<bool>,
    changed: Condvar,
}

impl Pace {
    fn set(&self, busy: bool) {
        *lock(&self.busy) = busy;
        self.changed.notify_all();
    }

    /// Waits until it is time to look again.
    fn wait(&self) {
        let busy = lock(&self.busy);
        if *busy {
            drop(busy);
            return std::thread::sleep(LOOK_AT_WORK);
        }
        drop(self.changed.wait_timeout_while(busy, LOOK, |busy| !*busy).unwrap_or_else(|e| e.into_inner()));
    }
}

/// A running collective.
struct UnderWay {
    deadline: Instant,
    description: String,
    work: Weak<dyn DeviceWork>,
    /// Its number in the record.
    sequence: u64,
}

/// A rank's properties, exchanged to choose how to move data.
#[derive(PartialEq)]
struct RankInfo {
    node: usize,
    identity: String,
    library: bool,
}

impl RankInfo {
    fn to_text(&self) -> String {
        format!("{} {} {}", self.node, self.library as u8, self.identity)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let [node, library, identity] = text.splitn(3, ' ').collect::<Vec<_>>()[..] else { return None };
        Some(Self { node: node.parse().ok()?, library: library == "1", identity: identity.to_owned() })
    }
}

/// How ranks move data between their devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Library,
    SharedMemory,
    Host,
}

/// The best transport that all ranks support, and why it is not the best of all.
fn choose(cards: &[RankInfo]) -> (Route, Option<String>) {
    let sharing = (0..cards.len()).find_map(|i| {
        let same = |j: &usize| cards[*j].node == cards[i].node && cards[*j].identity == cards[i].identity;
        (0..i).find(same).map(|j| format!("ranks {j} and {i} share a device"))
    });
    let missing = cards.iter().position(|card| !card.library).map(|r| format!("rank {r} has no library for it"));
    let Some(why) = sharing.or(missing) else { return (Route::Library, None) };
    let one_node = cards.iter().all(|card| card.node == cards[0].node);
    let unknown = cards.iter().any(|card| card.identity.is_empty());
    if one_node && !unknown { (Route::SharedMemory, Some(why)) } else { (Route::Host, Some(why)) }
}

impl DeviceGroup {
    pub(crate) fn new(host: HostGroup, nodes: Vec<usize>, job: Arc<Job>) -> Self {
        let timeout = host.timeout();
        let record = host.record().clone();
        let (comms, under_way, pace) = (Mutex::default(), Mutex::default(), Arc::default());
        let shared = Arc::new(DeviceComms { job, timeout: Mutex::new(timeout), comms, under_way, pace, record });
        Self { host, nodes, shared }
    }

    /// The communicator of a device; `None` if tensors go through the host. Made at the first collective, at which all
    /// ranks meet.
    fn comm(&self, device: Device) -> Result<Option<Arc<dyn DeviceComm>>> {
        let known = lock(&self.shared.comms).iter().find(|(d, _)| *d == device).map(|(_, comm)| comm.clone());
        if let Some(comm) = known {
            return Ok(comm);
        }
        let made = self.make(device)?;
        lock(&self.shared.comms).push((device, made.clone()));
        if let Some(comm) = &made
            && self.size() > 1
        {
            let weak = Arc::downgrade(comm);
            self.shared.job.abort.on_raise(move || {
                if let Some(comm) = weak.upgrade() {
                    comm.abort();
                }
            });
            watch(&self.shared)?;
        }
        Ok(made)
    }

    fn make(&self, device: Device) -> Result<Option<Arc<dyn DeviceComm>>> {
        let engine = rushlight_engines::backend(device)?.collectives();
        let (rank, size) = (self.rank(), self.size());
        let forced = std::env::var("RUSHLIGHT_DEVICE_COLLECTIVES").unwrap_or_default();
        if !matches!(&forced[..], "" | "library" | "shared" | "host") {
            return Err(Error::value(format!(
                "RUSHLIGHT_DEVICE_COLLECTIVES={forced:?}: library, shared or host are known, or leave it unset"
            )));
        }
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let card = RankInfo {
            node: self.nodes[rank],
            identity: match engine {
                Some(engine) if forced != "host" => engine.identity().map(hex).unwrap_or_default(),
                _ => String::new(),
            },
            library: engine.is_some_and(|engine| engine.library().is_ok()) && !matches!(&forced[..], "shared" | "host"),
        };
        let malformed = || Error::io("a rank sent a malformed description of its device");
        let all = self.host.all_gather_object(card.to_text().as_bytes())?;
        let cards = all.iter().map(|text| RankInfo::parse(text).ok_or_else(malformed)).collect::<Result<Vec<_>>>()?;
        let (way, why) = choose(&cards);
        let (Some(engine), true) = (engine, way != Route::Host) else {
            self.explain(device, "go through the host", why.as_deref());
            return Ok(None);
        };
        if way == Route::Library {
            let id = (rank == 0).then(|| engine.unique_id()).transpose();
            let id = self.agreed(id, "the library's identifier")?;
            let id = self.host.broadcast_object(id.as_deref(), 0)?;
            return self.join_library(device, id, rank, size).map(Some);
        }
        let offer = engine.offer_memory(rank, size);
        let cards = self.host.all_gather_object(offer.as_ref().map_or(&[], |offer| &offer.card[..]))?;
        let made = offer.and_then(|offer| match cards.iter().position(Vec::is_empty) {
            None => (offer.accept)(&cards),
            Some(rank) => Err(Error::device(format!("rank {rank} cannot share its device's memory"))),
        });
        // All ranks or none.
        let failed = made.as_ref().err().map(|e| e.to_string()).unwrap_or_default();
        let reasons = self.host.all_gather_object(failed.as_bytes())?;
        if let Some(rank) = reasons.iter().position(|reason| !reason.is_empty()) {
            let reason = String::from_utf8_lossy(&reasons[rank]).into_owned();
            self.explain(device, "go through the host", Some(&format!("rank {rank}: {reason}")));
            return Ok(None);
        }
        if size > 1 {
            self.explain(device, "use device memory that the ranks share", why.as_deref());
        }
        made.map(Some)
    }

    /// Prints once, on one rank, why collectives do not use the vendor's library.
    fn explain(&self, device: Device, what: &str, why: Option<&str>) {
        if self.rank() == 0 && self.host.name() == "world" {
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            rushlight_core::warn!("collectives of tensors on {device} {what}{why}");
        }
    }

    /// Shares a value that one rank made, or its error, with all ranks.
    fn agreed<T>(&self, made: Result<T>, what: &str) -> Result<T> {
        let failed = made.as_ref().err().map(|e| e.to_string()).unwrap_or_default();
        let reasons = self.host.all_gather_object(failed.as_bytes())?;
        match reasons.iter().position(|reason| !reason.is_empty()) {
            None => made,
            Some(rank) => {
                let reason = String::from_utf8_lossy(&reasons[rank]).into_owned();
                Err(Error::device(format!("{what}: rank {rank}: {reason}")))
            }
        }
    }

    /// Joins the library's communicator on a separate thread: if a rank dies meanwhile, the wait ends.
    fn join_library(&self, device: Device, id: Vec<u8>, rank: usize, size: usize) -> Result<Arc<dyn DeviceComm>> {
        let engine: &'static dyn Collectives = rushlight_engines::backend(device)?
            .collectives()
            .ok_or_else(|| Error::device(format!("{device} has no collectives")))?;
        let (tell, told) = channel();
        std::thread::Builder::new()
            .name("rushlight-join".into())
            .spawn(move || _ = tell.send(engine.join(&id, rank, size)))?;
        let timeout = self.timeout();
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let failed = |e: Error| {
            let reason = self.shared.job.fail(&e.to_string(), e.kind());
            Error::new(e.kind(), format!("joining the collectives of {device}: {reason}"))
        };
        loop {
            match told.recv_timeout(Duration::from_millis(20)) {
                Ok(made) => return made.map_err(failed),
                Err(RecvTimeoutError::Disconnected) => return Err(failed(Error::device("the joining thread ended"))),
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.job.abort.check()?;
                    if Instant::now() > deadline {
                        let seconds = timeout.as_secs_f32();
                        return Err(failed(Error::timeout(format!("timed out after {seconds} s"))));
                    }
                }
            }
        }
    }

    fn start(&self, comm: &Arc<dyn DeviceComm>, collective: &Collective) -> Result<Work> {
        let description = collective.describe();
        rushlight_tensor::program::note_foreign("a collective");
        let job = &self.shared.job;
        comm.error().map_err(|e| {
            let reason = job.fail(&format!("{description}: {e}"), e.kind());
            Error::new(e.kind(), format!("{description} (group {}, rank {}): {reason}", self.name(), self.rank()))
        })?;
        // Messages between two ranks concern no other rank.
        let sequence = match collective {
            _ if collective.is_message() => self.host.note(&description),
            _ if self.size() == 1 => self.host.note(&description),
            _ => self.host.compare(&description)?,
        };
        let ended = |well: bool| lock(&self.shared.record).end(sequence, well);
        let lowered = Lowered::new(collective, self.rank(), self.size()).inspect_err(|_| ended(false))?;
        if lowered.ops.is_empty() {
            ended(true);
            return Ok(Work::finished(Ok(())));
        }
        let ops: Vec<_> = lowered.ops.iter().map(Op::on_device).collect();
        lock(&self.shared.record).start(sequence);
        let started = comm.start(&ops).map_err(|e| {
            ended(false);
            let reason = match e.kind() {
                // An error of this rank alone, before anything was sent.
                ErrorKind::Unsupported | ErrorKind::OutOfMemory => e.to_string(),
                kind => job.fail(&format!("{description}: {e}"), kind),
            };
            Error::new(e.kind(), format!("{description} (group {}, rank {}): {reason}", self.name(), self.rank()))
        })?;
        drop(ops);
        lowered.written.iter().for_each(|t| t.storage().bump_version());
        if self.size() > 1 && capture::recording_id().is_none() {
            let deadline = Instant::now() + self.timeout().min(Duration::from_secs(1 << 30));
            let work = Arc::downgrade(&started);
            lock(&self.shared.under_way).push_back(UnderWay { deadline, description, work, sequence });
            self.shared.pace.set(true);
        } else {
            // Nothing is under way in a recorded step, and nobody waits for one rank.
            ended(true);
        }
        Ok(Work::on_device(started, lowered, job.clone()))
    }
}

/// Starts the thread that detects failures in the background, when no call is waiting.
fn watch(shared: &Arc<DeviceComms>) -> Result<()> {
    if lock(&shared.comms).iter().filter(|(_, comm)| comm.is_some()).count() > 1 {
        return Ok(());
    }
    let (weak, pace) = (Arc::downgrade(shared), shared.pace.clone());
    std::thread::Builder::new().name("rushlight-devices".into()).spawn(move || {
        loop {
            pace.wait();
            let Some(shared) = weak.upgrade() else { return };
            if shared.job.abort.is_raised() {
                return;
            }
            if let Err(e) = shared.look() {
                shared.job.fail(&e.to_string(), e.kind());
                shared.job.write_records();
                return;
            }
        }
    })?;
    Ok(())
}

impl DeviceComms {
    /// An error of a library, or a collective that all ranks have called and that does not end.
    fn look(&self) -> Result<()> {
        let comms: Vec<_> = lock(&self.comms).iter().filter_map(|(_, comm)| comm.clone()).collect();
        comms.iter().try_for_each(|comm| comm.error())?;
        let mut under_way = lock(&self.under_way);
        while let Some(UnderWay { deadline, description, work, sequence }) = under_way.front() {
            match work.upgrade() {
                Some(work) if !work.query()? => {
                    if Instant::now() < *deadline {
                        break;
                    }
                    lock(&self.record).end(*sequence, false);
                    let seconds = lock(&self.timeout).as_secs_f32();
                    return Err(Error::io(format!(
                        "{description} was called by all ranks and is not done after {seconds} s"
                    )));
                }
                _ => {
                    lock(&self.record).end(*sequence, true);
                    under_way.pop_front();
                }
            }
        }
        if under_way.is_empty() {
            self.pace.set(false);
        }
        Ok(())
    }
}

/// The device of a collective's tensors: one for all.
fn device_of(collective: &Collective) -> Result<Device> {
    let mut device = None;
    for t in collective.tensors() {
        match device {
            None => device = Some(t.device()),
            Some(first) if first != t.device() => {
                return Err(Error::device(format!(
                    "{}: tensors are on {first} and on {}; a collective takes tensors of one device",
                    collective.describe(),
                    t.device()
                )));
            }
            Some(_) => {}
        }
    }
    Ok(device.unwrap_or(Device::Cpu))
}

impl ProcessGroup for DeviceGroup {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    fn name(&self) -> &str {
        self.host.name()
    }

    fn backend(&self) -> &'static str {
        "nccl"
    }

    fn ranks(&self) -> &[usize] {
        self.host.ranks()
    }

    fn timeout(&self) -> Duration {
        self.host.timeout()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.host.set_timeout(timeout);
        *lock(&self.shared.timeout) = timeout;
    }

    fn submit(&self, collective: Collective, background: bool) -> Result<Work> {
        collective.check(self.rank(), self.size())?;
        let device = device_of(&collective)?;
        if device == Device::Cpu {
            capture::refuse_host(&collective.describe())?;
            return self.host.submit(collective, background);
        }
        self.shared.job.abort.check()?;
        match self.comm(device)? {
            Some(comm) => {
                let name = || format!("c10d::{}", super::host::call_name(&collective.describe()));
                let _span = rushlight_tensor::profile::span(rushlight_tensor::profile::Category::Op, name);
                self.start(&comm, &collective)
            }
            None => self.host.submit(collective, background),
        }
    }

    fn object_seal(&self) -> Option<&ObjectSeal> {
        self.host.object_seal()
    }

    fn flight_record(&self) -> FlightRecord {
        self.host.flight_record()
    }
}

/// The state of a collective on a device in a [`Work`].
pub(super) struct OnDevice {
    /// Dropped before the tensors: within a recorded step it orders later work after the collective.
    work: Arc<dyn DeviceWork>,
    after: Mutex<Vec<(Tensor, Tensor)>>,
    _tensors: Vec<Op>,
    job: Arc<Job>,
}

impl OnDevice {
    pub(super) fn new(work: Arc<dyn DeviceWork>, lowered: Lowered, job: Arc<Job>) -> Self {
        Self { work, after: Mutex::new(lowered.after), _tensors: lowered.ops, job }
    }

    /// Makes the calling thread's stream wait.
    pub(super) fn wait(&self) -> Result<()> {
        self.job.abort.check()?;
        self.work.join()?;
        let after = std::mem::take(&mut *lock(&self.after));
        rushlight_tensor::autograd::no_grad(|| after.iter().try_for_each(|(to, from)| to.copy_(from).map(drop)))
    }

    /// Makes the host wait, until a deadline.
    pub(super) fn wait_until(&self, deadline: Instant) -> Result<bool> {
        while !self.work.query()? {
            self.job.abort.check()?;
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.wait().map(|()| true)
    }

    pub(super) fn is_completed(&self) -> bool {
        self.job.abort.is_raised() || self.work.query().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(node: usize, identity: &str, library: bool) -> RankInfo {
        RankInfo { node, identity: identity.into(), library }
    }

    /// An operation that ends when it is told to.
    struct Slow(std::sync::atomic::AtomicBool);

    impl DeviceWork for Slow {
        fn join(&self) -> Result<()> {
            Ok(())
        }
        fn query(&self) -> Result<bool> {
            Ok(self.0.load(std::sync::atomic::Ordering::Relaxed))
        }
    }

    #[test]
    fn the_record_has_the_times_of_the_device() {
        let record = Arc::new(Mutex::new(FlightRecord::new("world", 0)));
        lock(&record).call(1, "all_reduce(sum) float32 [3]".into());
        lock(&record).start(1);
        let shared = DeviceComms {
            job: Arc::new(Job::new(0, 1, None)),
            timeout: Mutex::new(Duration::from_secs(60)),
            comms: Mutex::default(),
            under_way: Mutex::default(),
            pace: Arc::default(),
            record: record.clone(),
        };
        let work = Arc::new(Slow(false.into()));
        let weak: Weak<dyn DeviceWork> = Arc::downgrade(&work) as Weak<dyn DeviceWork>;
        let deadline = Instant::now() + Duration::from_secs(60);
        lock(&shared.under_way).push_back(UnderWay { deadline, description: String::new(), work: weak, sequence: 1 });
        shared.look().unwrap();
        assert_eq!(lock(&record).entries[0].stage, crate::group::Stage::Started);
        std::thread::sleep(Duration::from_millis(30));
        work.0.store(true, std::sync::atomic::Ordering::Relaxed);
        shared.look().unwrap();
        let entry = lock(&record).entries[0].clone();
        assert_eq!(entry.stage, crate::group::Stage::Completed);
        assert!(entry.took.unwrap() >= Duration::from_millis(30), "{:?}", entry.took);
    }

    /// A library whose operations are done at once.
    struct Immediate;

    impl DeviceComm for Immediate {
        fn name(&self) -> String {
            "test".into()
        }
        fn start(&self, _: &[rushlight_core::backend::DeviceOp]) -> Result<Arc<dyn DeviceWork>> {
            Ok(Arc::new(Slow(true.into())))
        }
        fn error(&self) -> Result<()> {
            Ok(())
        }
        fn abort(&self) {}
    }

    #[test]
    fn messages_between_devices_are_in_the_record() {
        use crate::comm::{Communicator, Links, NodeMemory};
        use crate::group::{P2p, Stage};
        let job = Arc::new(Job::new(0, 2, None));
        let transport = Communicator::new(0, &[0, 1], NodeMemory::Missing, Links::new(0, 0, Vec::new(), None));
        let host = HostGroup::new("world", vec![0, 1], Box::new(transport), job.clone(), Duration::from_secs(60));
        let group = DeviceGroup::new(host, vec![0, 1], job);
        let comm: Arc<dyn DeviceComm> = Arc::new(Immediate);
        let send = P2p { tensor: Tensor::ones([3]).unwrap(), peer: 1, tag: 0, sends: true };
        group.start(&comm, &Collective::P2p(vec![send])).unwrap().wait().unwrap();
        group.shared.look().unwrap();
        let entry = group.flight_record().entries[0].clone();
        assert_eq!((entry.collective.as_str(), entry.stage), ("send(to 1, tag 0) float32 [3]", Stage::Completed));
        // A library matches messages by order of their sender.
        let any = Collective::RecvAny { tensor: Tensor::ones([3]).unwrap(), tag: 0, from: Arc::default() };
        assert!(group.start(&comm, &any).err().unwrap().to_string().contains("name the sender"));
    }

    #[test]
    fn ranks_choose_alike() {
        let way = |cards: &[RankInfo]| choose(cards).0;
        assert_eq!(way(&[card(0, "a", true), card(0, "b", true)]), Route::Library);
        assert_eq!(way(&[card(0, "a", true), card(1, "a", true)]), Route::Library);
        assert_eq!(way(&[card(0, "a", true), card(0, "a", true)]), Route::SharedMemory);
        assert_eq!(way(&[card(0, "a", true), card(0, "b", false)]), Route::SharedMemory);
        assert_eq!(way(&[card(0, "a", true), card(0, "a", true), card(1, "c", true)]), Route::Host);
        assert_eq!(way(&[card(0, "", false), card(0, "", false)]), Route::Host);
        assert!(choose(&[card(0, "a", true), card(0, "a", true)]).1.unwrap().contains("ranks 0 and 1"));
        let text = card(3, "ab12", true).to_text();
        assert!(RankInfo::parse(text.as_bytes()).is_some_and(|c| c == card(3, "ab12", true)));
        assert!(RankInfo::parse(b"nonsense").is_none());
    }
}
