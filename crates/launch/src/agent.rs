//! The agent of a node: starts its ranks, watches them, and does what the coordinator says.

use crate::console::say;
use crate::coordinator::{Card, Command, Event};
use crate::guard::{self, Guard};
use crate::output::Output;
use crate::signals::{self, wait_readable};
use crate::worker::{self, Exit, Job, Place, Worker};
use rushlight_core::{Error, Result};
use rushlight_dist::store::Store;
use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long ranks may take to end when another has failed: they may hang in a collective that cannot end.
const STOP_TIME: Duration = Duration::from_secs(5);
/// A second signal this long after the first kills the ranks. Schedulers signal guard and agent both, so that one
/// signal may come twice.
const INSISTENCE: Duration = Duration::from_secs(1);
/// How long output is waited for after the ranks have ended.
const OUTPUT_TIME: Duration = Duration::from_secs(2);

/// The connection to the coordinator.
pub struct Link {
    store: Arc<dyn Store>,
    node: u64,
    holds_store: bool,
    commands: Receiver<Result<Command>>,
    /// Readable when there is a command.
    woken: OwnedFd,
}

impl Link {
    /// Joins the job. `watcher` is a connection to the same store, for a thread that waits for commands; `lease` is
    /// told the key that others take for this node's death; `holds_store` says that the store ends with this process.
    pub fn join(
        store: Arc<dyn Store>,
        watcher: Arc<dyn Store>,
        lease: impl FnOnce(&str) -> Result<()>,
        holds_store: bool,
        card: Card,
    ) -> Result<Self> {
        let node = store.add("nodes", 1)? as u64;
        lease(&format!("gone/{node}"))?;
        // Commands before this one are about others.
        let mut next = store.add("commands", 0)? as u64 + 1;
        let (sender, commands) = mpsc::channel();
        let (woken, wake) = signals::pipe()?;
        std::thread::Builder::new().name("rushlight-commands".into()).spawn(move || {
            loop {
                let key = format!("command/{next}");
                let news = match watcher.wait_for(&[&key], Duration::from_secs(30)) {
                    Err(e) if e.to_string().contains("timed out") => continue,
                    waited => waited.and_then(|()| watcher.get(&key)).and_then(|bytes| Command::decode(&bytes)),
                };
                next += 1;
                let failed = news.is_err();
                // SAFETY: writes one byte to a pipe that this thread owns.
                let written =
                    sender.send(news).is_ok() && unsafe { libc::write(wake.as_raw_fd(), b"x".as_ptr().cast(), 1) } == 1;
                if failed || !written {
                    return;
                }
            }
        })?;
        let link = Self { store, node, holds_store, commands, woken };
        link.tell(&Event::Join { node, card })?;
        Ok(link)
    }

    fn tell(&self, event: &Event) -> Result<()> {
        let number = self.store.add("events", 1).map_err(unreachable)?;
        self.store.set(&format!("event/{number}"), event.encode().as_bytes()).map_err(unreachable)
    }
}

/// The error of a connection that does not work any more.
fn unreachable(e: Error) -> Error {
    Error::io(format!("the launcher that holds the rendezvous is gone or unreachable: {e}"))
}

/// The ranks of a round.
struct Attempt {
    place: Place,
    workers: Vec<Worker>,
    output: Option<Output>,
    /// When ranks that were told to stop are killed.
    deadline: Option<Instant>,
    failed: bool,
    done: bool,
    /// The coordinator wants to hear when all have ended.
    stop_commanded: bool,
}

/// A node's agent.
pub struct Agent<'a> {
    job: &'a Job<'a>,
    guard: &'a Guard,
    link: Link,
    host: String,
    attempt: Option<Attempt>,
    /// The first signal from outside that asked the job to end, and when it came.
    ending: Option<(i32, Instant)>,
    /// The job's end, when it is known.
    end: Option<(i32, String)>,
    /// Whether this node has reported the failure that ended the job.
    reported: bool,
}

impl<'a> Agent<'a> {
    pub fn new(job: &'a Job<'a>, guard: &'a Guard, link: Link, host: String) -> Self {
        Self { job, guard, link, host, attempt: None, ending: None, end: None, reported: false }
    }

    /// Runs until the job is over. Returns the exit code.
    pub fn run(mut self) -> i32 {
        match self.rounds() {
            Ok(code) => code,
            Err(e) => {
                say(&e.to_string().replace("rushlight run: ", ""));
                self.kill_all();
                1
            }
        }
    }

    fn rounds(&mut self) -> Result<i32> {
        loop {
            let until = self.attempt.as_ref().and_then(|attempt| attempt.deadline);
            let left =
                until.map_or(self.job.options.monitor_interval, |at| at.saturating_duration_since(Instant::now()));
            let left = left.min(self.job.options.monitor_interval).max(Duration::from_millis(1));
            let fds = [self.guard.signals.fd(), self.guard.fd(), self.link.woken.as_raw_fd()];
            let [_, guard_died, _] = wait_readable(fds, i32::try_from(left.as_millis()).unwrap_or(i32::MAX));
            if guard_died {
                self.kill_all();
                return Ok(128 + libc::SIGKILL);
            }
            while let Some(signal) = self.guard.signals.next() {
                if signal != libc::SIGCHLD
                    && let Some(code) = self.signalled(signal)?
                {
                    return Ok(code);
                }
            }
            self.watch_ranks()?;
            while let Ok(command) = self.link.commands.try_recv() {
                let mut byte = 0u8;
                // SAFETY: reads the byte that was written for this command.
                unsafe { libc::read(self.link.woken.as_raw_fd(), (&raw mut byte).cast(), 1) };
                self.obey(command.map_err(unreachable)?)?;
            }
            if let Some(code) = self.settle()? {
                return Ok(code);
            }
        }
    }

    /// Forwards a signal. Returns a code if the job is over by it.
    fn signalled(&mut self, signal: i32) -> Result<Option<i32>> {
        let name = signals::name(signal);
        match &mut self.attempt {
            Some(attempt) if !attempt.done => {
                attempt.workers.iter().for_each(|worker| worker.signal(signal));
                if !signals::asks_to_end(signal) {
                    say(&format!("{name} forwarded to the ranks"));
                } else if self.ending.is_none() {
                    self.ending = Some((signal, Instant::now()));
                    attempt.deadline = Some(Instant::now() + self.job.options.grace);
                    let grace = self.job.options.grace.as_secs_f32();
                    say(&format!("{name} forwarded to the ranks; those that have not ended in {grace} s are killed"));
                } else if self.ending.is_some_and(|(_, since)| since.elapsed() > INSISTENCE) {
                    attempt.workers.iter().for_each(Worker::kill);
                }
                Ok(None)
            }
            _ if signals::asks_to_end(signal) => {
                let holds_store = self.link.holds_store;
                let what = format!("{name} at {} while no rank ran there", self.host);
                let _ = self.link.tell(&Event::Leaving { node: self.link.node, what, code: 128 + signal, holds_store });
                Ok(Some(128 + signal))
            }
            _ => Ok(None),
        }
    }

    /// Takes note of ranks that have ended.
    fn watch_ranks(&mut self) -> Result<()> {
        let Some(attempt) = &mut self.attempt else { return Ok(()) };
        let ended = worker::reap(&mut attempt.workers);
        let unexpected = self.ending.is_none() && self.end.is_none() && !attempt.stop_commanded && !attempt.failed;
        let first =
            ended.iter().copied().find(|&index| attempt.workers[index].ended.is_some_and(|exit| !exit.is_good()));
        if let (true, Some(index)) = (unexpected, first) {
            attempt.failed = true;
            let worker = &attempt.workers[index];
            let (rank, pid, exit) = (worker.rank, worker.pid, worker.ended.unwrap_or(Exit::Code(1)));
            let what = format!("rank {rank} (process {pid} on {}) failed: {exit}", self.host);
            let tail = attempt.output.as_ref().map(|o| o.tail(worker.local_rank, Duration::from_millis(500)));
            let mut report = what.clone();
            if let Some(tail) = tail.filter(|tail| !tail.is_empty()) {
                report += &format!("\n  its last lines:\n    {}", tail.join("\n    "));
            }
            say(&report);
            self.reported = true;
            attempt.stop();
            let round = attempt.place.round;
            let event = Event::Failed { node: self.link.node, round, what, code: exit.code(), fatal: false };
            self.link.tell(&event)?;
        }
        if attempt.deadline.is_some_and(|at| Instant::now() >= at) {
            attempt.workers.iter().for_each(Worker::kill);
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Round(mut places) => {
                if let Some(place) = places.remove(&self.link.node) {
                    self.start(place)?;
                }
            }
            Command::Stop { round, why } => {
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.place.round == round) {
                    say(&why);
                    attempt.stop_commanded = true;
                    attempt.stop();
                }
            }
            Command::End { code, why } => {
                if self.end.is_none() {
                    self.end = Some((code, why));
                }
                if let Some(attempt) = &mut self.attempt {
                    attempt.stop();
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, place: Place) -> Result<()> {
        self.reported = false;
        let round = place.round;
        let started = worker::start(self.job, &place).and_then(|(workers, sources)| {
            let output = Output::start(sources, self.job.local_size)?;
            Ok((workers, output))
        });
        match started {
            Ok((workers, output)) => {
                let output = Some(output);
                let (deadline, failed, done, stop_commanded) = (None, false, false, false);
                self.attempt = Some(Attempt { place, workers, output, deadline, failed, done, stop_commanded });
            }
            Err(e) => {
                let what = e.to_string().replace("rushlight run: ", "");
                say(&what);
                self.reported = true;
                guard::kill_descendants(&HashSet::new());
                let event = Event::Failed { node: self.link.node, round, what, code: 127, fatal: true };
                self.link.tell(&event)?;
            }
        }
        Ok(())
    }

    /// Does what follows when all ranks have ended. Returns a code if this node's part is over.
    fn settle(&mut self) -> Result<Option<i32>> {
        let (node, holds_store) = (self.link.node, self.link.holds_store);
        if let Some(attempt) = self.attempt.as_mut().filter(|a| a.workers.iter().all(|w| w.ended.is_some())) {
            if let Some(output) = attempt.output.take() {
                guard::kill_descendants(&HashSet::new());
                output.finish(OUTPUT_TIME);
            }
            attempt.deadline = None;
            let exits = || attempt.workers.iter().filter_map(|w| w.ended);
            let bad = exits().find(|exit| !exit.is_good());
            let code = exits().map(Exit::code).max().unwrap_or(0);
            let round = attempt.place.round;
            if self.end.is_some() {
                self.attempt = None;
            } else if let (Some((signal, _)), Some(exit)) = (self.ending, bad) {
                let what = format!("{} at {}: the ranks ended with {exit}", signals::name(signal), self.host);
                say(&what);
                let _ = self.link.tell(&Event::Leaving { node, what, code: exit.code(), holds_store });
                return Ok(Some(exit.code()));
            } else if attempt.stop_commanded {
                self.attempt = None;
                self.link.tell(&Event::Stopped { node, round, port: free_port()? })?;
            } else if bad.is_none() && !attempt.done {
                attempt.done = true;
                self.link.tell(&Event::Done { node, round, code })?;
            }
        }
        match (&self.attempt, self.end.take()) {
            (None, Some((code, why))) => {
                if code != 0 && !self.reported {
                    say(&why);
                }
                // The store may end before it has answered.
                let _ = self.link.tell(&Event::Left { node });
                Ok(Some(code))
            }
            (_, end) => {
                self.end = end;
                Ok(None)
            }
        }
    }

    fn kill_all(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.workers.iter().for_each(Worker::kill);
        }
        guard::kill_descendants(&HashSet::new());
        if let Some(output) = self.attempt.as_mut().and_then(|attempt| attempt.output.take()) {
            output.finish(Duration::from_millis(200));
        }
    }
}

impl Attempt {
    /// Asks ranks that still run to end, and has them killed if they do not.
    fn stop(&mut self) {
        if self.deadline.is_none() && self.workers.iter().any(|worker| worker.ended.is_none()) {
            self.workers.iter().for_each(|worker| worker.signal(libc::SIGTERM));
            self.deadline = Some(Instant::now() + STOP_TIME);
        }
    }
}

/// A port for rank 0 to listen on: free now, and outside of the range that outgoing connections take theirs from.
pub fn free_port() -> Result<u16> {
    let mut seed = [0u8; 8];
    std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut seed))?;
    let name = format!("{} {}", std::process::id(), u64::from_le_bytes(seed));
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    rushlight_dist::launch::candidate_ports(&name).into_iter().find(free).ok_or_else(|| {
        Error::io("rushlight run: none of 16 ports between 15000 and 32767 is free on this node; give --master-port")
    })
}
