//! Crew: the workers of a pool, and their assignment to regions.
//!
//! Share `i` of a region belongs to worker `i`; the caller has share 0. The caller offers the region to the worker in
//! the middle, which recruits the upper half, and so on. A region wakes the workers of its shares and no others, in
//! log2(workers) steps. The caller never waits for a worker that has not begun: when no tasks are left, it withdraws
//! the offer.
//!
//! If a share's worker is busy, an idle one substitutes for it. If none is idle, the region is listed as an opening:
//! workers that run out of work join it, and half of the missing ones leave their region for it after their current
//! task. So regions of several threads share the workers. Nested regions use idle workers only.
//!
//! No deadlock: a caller waits only for running tasks, and these wait at most for regions of their own.

use super::mailbox::{Call, Mailbox, Role};
use super::region::{Region, Task, halves};
use super::sync::{Arc, AtomicUsize, Backoff, Mutex, lock, thread};
use super::topology::Nodes;
use std::cell::Cell;
use std::sync::atomic::Ordering::*;

/// Maximum threads of a region, including the caller: the hardware threads of two sockets with 128 cores.
pub const MAX_THREADS: usize = 512;

/// Spin iterations before a worker parks: about 0.2 ms on current chips, so that the next region of a training step
/// finds it awake.
#[cfg(not(loom))]
const SPINS: u32 = 4_000;
#[cfg(loom)]
const SPINS: u32 = 0;

pub struct Crew {
    /// Mailboxes by worker number; the first is unused, because the caller is thread 0 of its region.
    pub(super) workers: Box<[Mailbox]>,
    /// Number of workers, not counting 0. Changed under `spawning`.
    count: AtomicUsize,
    spawning: Mutex<()>,
    /// Threads of the latest region: determines placement of workers, and whether they may spin.
    threads: AtomicUsize,
    /// Cores this process may use.
    cores: usize,
    nodes: Option<Nodes>,
    openings: Mutex<Vec<Opening>>,
    /// Number of places in `openings`, and of urgent ones, readable without the lock.
    pub(super) places: AtomicUsize,
    pub(super) urgent: AtomicUsize,
}

/// Vacancies for workers in a region that is short of them.
struct Opening {
    region: *const Region,
    places: usize,
    /// Urgent: workers leave other regions for this one.
    urgent: bool,
}

// SAFETY: a region in the list is alive: its caller takes it off the list before it ends.
unsafe impl Send for Opening {}

#[cfg(not(loom))]
thread_local! {
    /// Whether this thread runs a task: its regions are nested.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// A region of this thread, kept for reuse.
    static SPARE: Cell<Option<Box<Region>>> = const { Cell::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static INSIDE: Cell<bool> = Cell::new(false);
}

/// Sets whether this thread runs a task; returns the previous value.
#[inline]
fn set_inside(inside: bool) -> bool {
    INSIDE.with(|cell| cell.replace(inside))
}

#[inline]
fn take_spare() -> Box<Region> {
    #[cfg(not(loom))]
    if let Ok(Some(region)) = SPARE.try_with(Cell::take) {
        return region;
    }
    Box::new(Region::new())
}

#[inline]
fn keep_spare(_region: Box<Region>) {
    #[cfg(not(loom))]
    let _ = SPARE.try_with(|spare| spare.set(Some(_region)));
}

impl Crew {
    pub fn new(cores: usize, nodes: Option<Nodes>, max_threads: usize) -> Arc<Self> {
        Arc::new(Self {
            workers: (0..max_threads).map(|_| Mailbox::new()).collect(),
            count: AtomicUsize::new(0),
            spawning: Mutex::new(()),
            threads: AtomicUsize::new(0),
            cores,
            nodes,
            openings: Mutex::new(Vec::new()),
            places: AtomicUsize::new(0),
            urgent: AtomicUsize::new(0),
        })
    }

    /// Runs `task(0)`, …, `task(tasks - 1)`, each once, over at most `threads` threads. A task's panic continues in the
    /// caller after all running tasks have ended.
    pub fn run(self: &Arc<Self>, threads: usize, tasks: usize, task: Task) {
        let threads = threads.min(self.workers.len());
        let mut region = take_spare();
        let nested = set_inside(true);
        // SAFETY: `join` returns when no worker can come to the region any more, and the task outlives this call.
        unsafe { region.set_up(task, tasks, threads, nested) };
        if self.threads.load(Relaxed) != threads {
            self.threads.store(threads, Relaxed);
        }
        let until = region.shares().min(self.ensure(region.shares() - 1) + 1);
        self.recruit(&region, 0, until);
        region.run_tasks(0, || false);
        set_inside(nested);
        self.join(&region, until);
        let panic = region.take_panic();
        keep_spare(region);
        if let Some(payload) = panic {
            std::panic::resume_unwind(payload);
        }
    }

    /// More threads than cores: a spinning thread may keep another from running.
    fn is_crowded(&self) -> bool {
        self.threads.load(Relaxed) > self.cores
    }

    /// Starts workers until there are `wanted`; returns their number.
    #[inline]
    fn ensure(self: &Arc<Self>, wanted: usize) -> usize {
        match self.count.load(Acquire) {
            count if count >= wanted => count,
            _ => self.spawn(wanted),
        }
    }

    #[cold]
    fn spawn(self: &Arc<Self>, wanted: usize) -> usize {
        let _guard = lock(&self.spawning);
        let mut count = self.count.load(Relaxed);
        while count < wanted {
            let (crew, number) = (self.clone(), count + 1);
            let spawned = thread::Builder::new().name(format!("rushlight-{number}")).spawn(move || crew.serve(number));
            // If the system refuses more threads, the existing ones are used.
            let Ok(handle) = spawned else { break };
            self.workers[number].set_thread(handle.thread().clone());
            count = number;
            self.count.store(count, Release);
        }
        count
    }

    /// Offers the region to the workers of the shares after `own` up to `until`; some of them recruit the others.
    #[inline]
    fn recruit(self: &Arc<Self>, region: &Region, own: usize, until: usize) {
        let mut missing = 0;
        for (middle, until) in halves(own, until) {
            for worker in middle..until {
                region.set_recruits(worker, until);
                if self.workers[worker].offer(region, Role::Member) {
                    break;
                }
                missing += 1;
            }
        }
        if missing > 0 {
            self.substitute(region, missing);
        }
    }

    /// Finds substitutes for busy workers of shares.
    #[cold]
    fn substitute(self: &Arc<Self>, region: &Region, mut missing: usize) {
        if !region.nested {
            // Before checking for idle workers: a worker that goes to sleep meanwhile is seen by us, or sees this.
            self.open(region, missing - missing / 2, false);
            self.open(region, missing / 2, true);
        }
        // Set before any offer: the caller looks for substitutes if there may be one.
        region.has_substitutes.store(true, Relaxed);
        // The existing workers first, then new ones if some are still missing.
        let mut tried = 0;
        while missing > 0 && tried < region.limit - 1 {
            let wanted = if tried == 0 { 0 } else { (tried + missing).min(region.limit - 1) };
            let last = self.ensure(wanted).min(region.limit - 1);
            if last == tried {
                break;
            }
            for worker in (tried + 1..=last).rev() {
                if missing > 0 && self.workers[worker].offer(region, Role::Substitute) {
                    missing -= 1;
                }
            }
            tried = last;
        }
    }

    /// Waits until no worker uses the region any more. A worker recruits only workers of higher number, so waiting in
    /// ascending order sees every recruited worker.
    #[inline]
    fn join(&self, region: &Region, until: usize) {
        let mut backoff = Backoff::default();
        let mut settle = |workers: std::ops::Range<usize>| {
            for worker in workers {
                while !self.workers[worker].settle(region) {
                    backoff.wait(self.is_crowded());
                }
            }
        };
        settle(1..until);
        // All recruiters have left: no substitute can come after this.
        if region.has_substitutes.load(Relaxed) {
            settle(1..region.limit);
        }
        if region.listed.load(Relaxed) {
            self.close(region);
            while region.guests.load(Acquire) != 0 {
                backoff.wait(self.is_crowded());
            }
        }
    }

    /// Lists vacancies of a region. Called by threads that are in the region.
    fn open(&self, region: &Region, places: usize, urgent: bool) {
        if places == 0 {
            return;
        }
        let mut openings = lock(&self.openings);
        if region.closed.load(Relaxed) {
            return;
        }
        region.listed.store(true, Relaxed);
        match openings.iter_mut().find(|o| std::ptr::eq(o.region, region) && o.urgent == urgent) {
            Some(opening) => opening.places += places,
            None => openings.push(Opening { region, places, urgent }),
        }
        self.places.fetch_add(places, SeqCst);
        if urgent {
            self.urgent.fetch_add(places, SeqCst);
        }
    }

    /// Takes a region off the list.
    #[cold]
    fn close(&self, region: &Region) {
        let mut openings = lock(&self.openings);
        region.closed.store(true, Relaxed);
        openings.retain(|opening| {
            let stays = !std::ptr::eq(opening.region, region);
            if !stays {
                self.count_out(opening, opening.places);
            }
            stays
        });
    }

    fn count_out(&self, opening: &Opening, places: usize) {
        self.places.fetch_sub(places, Relaxed);
        if opening.urgent {
            self.urgent.fetch_sub(places, Relaxed);
        }
    }

    /// Takes a vacancy in a listed region and registers the thread as its guest. A thread that is in a region moves
    /// only to another, urgent one.
    #[cold]
    fn take_place(&self, from: Option<&Region>) -> Option<*const Region> {
        let mut openings = lock(&self.openings);
        let suits =
            |o: &&mut Opening| o.places > 0 && from.is_none_or(|from| o.urgent && !std::ptr::eq(o.region, from));
        let opening = openings.iter_mut().filter(suits).max_by_key(|o| o.urgent)?;
        opening.places -= 1;
        self.count_out(opening, 1);
        // SAFETY: listed regions are alive, and one with guests stays so.
        unsafe { (*opening.region).guests.fetch_add(1, Relaxed) };
        Some(opening.region)
    }

    /// Runs tasks of a region as a worker. Returns another region that the worker left for, with its vacancy taken.
    fn assist(&self, region: &Region, number: usize) -> Option<*const Region> {
        let next = Cell::new(None);
        region.run_tasks(number, || {
            if self.urgent.load(Relaxed) == 0 {
                return false;
            }
            next.set(self.take_place(Some(region)));
            next.get().is_some()
        });
        if next.get().is_some() && !region.nested {
            // An idle worker may take over here.
            self.open(region, 1, false);
        }
        next.get()
    }

    /// Main loop of a worker.
    fn serve(self: Arc<Self>, number: usize) {
        set_inside(true);
        let mailbox = &self.workers[number];
        let mut placed_for = 0;
        loop {
            let spins = if self.is_crowded() { 0 } else { SPINS };
            let mut next = match mailbox.receive(spins, || self.places.load(SeqCst) != 0) {
                Call::Region(region, role) => {
                    if let Some(nodes) = &self.nodes
                        && placed_for != self.threads.load(Relaxed)
                    {
                        placed_for = self.threads.load(Relaxed);
                        nodes.place(number, placed_for);
                    }
                    // SAFETY: the caller waits until this worker leaves.
                    let region = unsafe { &*region };
                    if role == Role::Member {
                        self.recruit(region, number, region.recruits(number));
                    }
                    let next = self.assist(region, number);
                    let busy = next.is_some() || self.places.load(Relaxed) != 0;
                    mailbox.leave(busy);
                    if !busy {
                        continue;
                    }
                    next
                }
                Call::Openings => None,
                #[cfg(any(test, loom))]
                Call::Quit => return,
            };
            while let Some(region) = next.or_else(|| self.take_place(None)) {
                // SAFETY: the place taken keeps the region alive.
                let region = unsafe { &*region };
                next = self.assist(region, number);
                region.guests.fetch_sub(1, Release);
            }
            mailbox.leave(false);
        }
    }

    /// Ends all workers.
    #[cfg(any(test, loom))]
    pub fn quit(&self) {
        let _guard = lock(&self.spawning);
        (1..=self.count.load(Acquire)).for_each(|worker| self.workers[worker].quit());
    }
}
