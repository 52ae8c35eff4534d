//! The agent of a node: starts its ranks, watches them, and carries out the coordinator's commands.

use crate::console::tell_user;
use crate::coordinator::{Command, Event};
use crate::guard::{self, Guard};
use crate::link::{Contact, Link, Rejoining, free_port};
use crate::output::Output;
use crate::signals::{self, wait_readable};
use crate::worker::{self, Exit, Job, Place, Worker};
use rushlight_core::{Error, Result};
use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A second signal at least this long after the first kills the ranks. Schedulers signal guard and agent both, so that
/// one signal may arrive twice.
const INSISTENCE: Duration = Duration::from_secs(1);
/// How long to wait for output after the ranks have ended.
const OUTPUT_TIME: Duration = Duration::from_secs(2);

/// The ranks of a round.
struct Attempt {
    place: Place,
    workers: Vec<Worker>,
    output: Option<Output>,
    /// Deadline after which stopping ranks are killed.
    deadline: Option<Instant>,
    failed: bool,
    done: bool,
    /// Whether to report to the coordinator when all ranks have ended.
    stop_commanded: bool,
}

/// The state of the link to the coordinator.
enum Connection {
    Joined(Link),
    /// The link was lost; ranks are being stopped.
    Lost,
    Rejoining(Rejoining),
}

/// A node's agent.
pub struct Agent<'a> {
    job: &'a Job<'a>,
    guard: &'a Guard,
    contact: &'a Contact,
    link: Connection,
    host: String,
    attempt: Option<Attempt>,
    /// The first external signal to end the job, and its time.
    ending: Option<(i32, Instant)>,
    /// The job's end, once it is known.
    end: Option<(i32, String)>,
    /// Whether this node has reported the failure that ended the job.
    reported: bool,
}

impl<'a> Agent<'a> {
    pub fn new(job: &'a Job<'a>, guard: &'a Guard, contact: &'a Contact, link: Link, host: String) -> Self {
        let link = Connection::Joined(link);
        Self { job, guard, contact, link, host, attempt: None, ending: None, end: None, reported: false }
    }

    /// Runs until the job is over. Returns the exit code.
    pub fn run(mut self) -> i32 {
        let code = match self.rounds() {
            Ok(code) => code,
            Err(e) => {
                tell_user(&e.to_string().replace("rushlight run: ", ""));
                self.kill_all();
                1
            }
        };
        if let Some(path) = self.job.options.exit_code_file.as_ref().filter(|_| self.holds_store())
            && let Err(e) = std::fs::write(path, format!("{code}\n"))
        {
            tell_user(&format!("the exit code cannot be written to {} ({e})", path.display()));
        }
        if let Connection::Joined(link) = &self.link {
            link.finish(|| {
                let [_, guard_died] = wait_readable([self.guard.signals.fd(), self.guard.fd()], 0);
                !guard_died && !std::iter::from_fn(|| self.guard.signals.next()).any(signals::asks_to_end)
            });
        }
        code
    }

    /// Sends an event to the coordinator, or notes that the link is lost.
    fn tell(&mut self, event: &Event) -> Result<()> {
        match &self.link {
            Connection::Joined(link) => link.tell(event).or_else(|e| self.lose_link(&e)),
            // A coordinator that is found again treats this node as a new one.
            _ => Ok(()),
        }
    }

    /// The number of this node, which it has while it is joined.
    fn node(&self) -> u64 {
        if let Connection::Joined(link) = &self.link { link.node } else { 0 }
    }

    fn holds_store(&self) -> bool {
        matches!(&self.link, Connection::Joined(link) if link.holds_store)
    }

    /// Called when the rendezvous cannot be reached: stops the ranks; the node then tries to join again.
    fn lose_link(&mut self, e: &Error) -> Result<()> {
        let Some(patience) = self.contact.patience().filter(|_| !self.holds_store()) else {
            return Err(Error::io(format!("the coordinator cannot be reached: {e}")));
        };
        tell_user(&format!(
            "the launcher that holds the rendezvous at {} is gone or unreachable ({e}); ranks here are stopped, and this node tries to join again for {} s",
            self.contact.place(),
            patience.as_secs_f32()
        ));
        self.link = Connection::Lost;
        if let Some(attempt) = &mut self.attempt {
            attempt.stop(self.job.options.stop_time);
        }
        Ok(())
    }

    /// Handles commands, or a re-established link.
    fn listen(&mut self) -> Result<()> {
        let take_byte = |fd| {
            let mut byte = 0u8;
            // SAFETY: reads the byte that announces a received message.
            unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
        };
        loop {
            match &mut self.link {
                Connection::Joined(link) => {
                    let Ok(command) = link.commands.try_recv() else { return Ok(()) };
                    take_byte(link.woken.as_raw_fd());
                    match command {
                        Ok(command) => self.obey(command)?,
                        Err(e) => self.lose_link(&e)?,
                    }
                }
                Connection::Rejoining(rejoining) => {
                    let Ok(joined) = rejoining.link.try_recv() else { return Ok(()) };
                    let link = joined.map_err(|e| {
                        Error::io(format!(
                            "the rendezvous at {} did not come back ({e}). Start the job again: programs that save checkpoints resume from the last one",
                            self.contact.place()
                        ))
                    })?;
                    let holds = if link.holds_store { "; the rendezvous is held here now" } else { "" };
                    tell_user(&format!("joined the job again at {}{holds}", self.contact.place()));
                    self.link = Connection::Joined(link);
                }
                Connection::Lost => return Ok(()),
            }
        }
    }

    fn rounds(&mut self) -> Result<i32> {
        loop {
            let until = self.attempt.as_ref().and_then(|attempt| attempt.deadline);
            let left =
                until.map_or(self.job.options.monitor_interval, |at| at.saturating_duration_since(Instant::now()));
            let left = left.min(self.job.options.monitor_interval).max(Duration::from_millis(1));
            let news = match &self.link {
                Connection::Joined(link) => link.woken.as_raw_fd(),
                Connection::Rejoining(rejoining) => rejoining.woken.as_raw_fd(),
                // `poll` ignores negative descriptors.
                Connection::Lost => -1,
            };
            let fds = [self.guard.signals.fd(), self.guard.fd(), news];
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
            self.listen()?;
            if let Some(code) = self.settle()? {
                return Ok(code);
            }
        }
    }

    /// Forwards a signal. Returns a code if it ends the job.
    fn signalled(&mut self, signal: i32) -> Result<Option<i32>> {
        let name = signals::name(signal);
        match &mut self.attempt {
            Some(attempt) if !attempt.done => {
                attempt.workers.iter().for_each(|worker| worker.signal(signal));
                if !signals::asks_to_end(signal) {
                    tell_user(&format!("{name} forwarded to the ranks"));
                } else if self.ending.is_none() {
                    self.ending = Some((signal, Instant::now()));
                    attempt.deadline = Some(Instant::now() + self.job.options.grace);
                    let grace = self.job.options.grace.as_secs_f32();
                    tell_user(&format!(
                        "{name} forwarded to the ranks; those that have not ended in {grace} s are killed"
                    ));
                } else if self.ending.is_some_and(|(_, since)| since.elapsed() > INSISTENCE) {
                    attempt.workers.iter().for_each(Worker::kill);
                }
                Ok(None)
            }
            _ if signals::asks_to_end(signal) => {
                let (node, holds_store) = (self.node(), self.holds_store());
                let what = format!("{name} at {} while no rank ran there", self.host);
                let _ = self.tell(&Event::Leaving { node, what, code: 128 + signal, holds_store });
                Ok(Some(128 + signal))
            }
            _ => Ok(None),
        }
    }

    /// Handles ranks that have ended.
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
            if let Some(error) = self.job.failures.error_of(&attempt.place, worker.local_rank) {
                report += &format!("\n  its error: {error}");
            }
            if let Some(tail) = tail.filter(|tail| !tail.is_empty()) {
                report += &format!("\n  its last lines:\n    {}", tail.join("\n    "));
            }
            tell_user(&report);
            self.reported = true;
            attempt.stop(self.job.options.stop_time);
            let round = attempt.place.round;
            self.tell(&Event::Failed { node: self.node(), round, what, code: exit.code(), fatal: false })?;
        }
        if let Some(attempt) = self.attempt.as_ref().filter(|a| a.deadline.is_some_and(|at| Instant::now() >= at)) {
            attempt.workers.iter().for_each(Worker::kill);
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Round(mut places) => {
                if let Some(place) = places.remove(&self.node()) {
                    self.start(place)?;
                }
            }
            Command::Stop { round, why, gently } => {
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.place.round == round) {
                    tell_user(&why);
                    attempt.stop_commanded = true;
                    attempt.stop(if gently { self.job.options.grace } else { self.job.options.stop_time });
                }
            }
            Command::End { code, why } => {
                if self.end.is_none() {
                    self.end = Some((code, why));
                }
                if let Some(attempt) = &mut self.attempt {
                    attempt.stop(self.job.options.stop_time);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, place: Place) -> Result<()> {
        self.reported = false;
        let round = place.round;
        self.job.failures.forget(&place);
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
                tell_user(&what);
                self.reported = true;
                guard::kill_descendants(&HashSet::new());
                self.tell(&Event::Failed { node: self.node(), round, what, code: 127, fatal: true })?;
            }
        }
        Ok(())
    }

    /// Handles the end of all ranks. Returns an exit code if this node is done.
    fn settle(&mut self) -> Result<Option<i32>> {
        let (node, holds_store) = (self.node(), self.holds_store());
        if let Some(attempt) = self.attempt.as_mut().filter(|a| a.workers.iter().all(|w| w.ended.is_some())) {
            if let Some(output) = attempt.output.take() {
                guard::kill_descendants(&HashSet::new());
                output.finish(OUTPUT_TIME);
                self.job.failures.write(&attempt.place, &attempt.workers);
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
                tell_user(&what);
                let _ = self.tell(&Event::Leaving { node, what, code: exit.code(), holds_store });
                return Ok(Some(exit.code()));
            } else if matches!(self.link, Connection::Lost) {
                if self.ending.is_some() {
                    return Ok(Some(code));
                }
                self.attempt = None;
            } else if attempt.stop_commanded {
                self.attempt = None;
                self.tell(&Event::Stopped { node, round, port: free_port()? })?;
            } else if bad.is_none() && !attempt.done {
                attempt.done = true;
                self.tell(&Event::Done { node, round, code })?;
            }
        }
        match (&self.attempt, self.end.take()) {
            (None, Some((code, why))) => {
                if code != 0 && !self.reported {
                    tell_user(&why);
                }
                // The store may end before it has answered.
                if let Connection::Joined(link) = &self.link {
                    let _ = link.tell(&Event::Left { node });
                }
                return Ok(Some(code));
            }
            (_, end) => self.end = end,
        }
        if let (None, Connection::Lost, Some(patience)) = (&self.attempt, &self.link, self.contact.patience()) {
            self.link = Connection::Rejoining(self.contact.rejoin(patience)?);
        }
        Ok(None)
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
    /// Terminates running ranks, and kills those that do not end in time.
    fn stop(&mut self, patience: Duration) {
        if self.deadline.is_none() && self.workers.iter().any(|worker| worker.ended.is_none()) {
            self.workers.iter().for_each(|worker| worker.signal(libc::SIGTERM));
            self.deadline = Some(Instant::now() + patience);
        }
    }
}
