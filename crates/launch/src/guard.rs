//! Two processes for a launcher, so that no rank outlives it.
//!
//! The process that the user started forks the agent, which does the work, and stays as its guard. Both adopt orphaned
//! descendants (`PR_SET_CHILD_SUBREAPER`), so each can kill all processes that the ranks have started, even in separate
//! sessions. If the guard is killed, the agent sees its pipe close and kills the ranks; if the agent is killed, the
//! ranks die with it (`PR_SET_PDEATHSIG`) and the guard kills the rest.

use crate::console::tell_user;
use crate::signals::{self, Blocked, wait_readable};
use rushlight_core::Result;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The agent's handle of its guard.
pub struct Guard {
    /// The signals of the agent's process.
    pub signals: Blocked,
    alive: OwnedFd,
}

impl Guard {
    /// Readable when the guard is dead.
    pub fn fd(&self) -> RawFd {
        self.alive.as_raw_fd()
    }
}

/// Runs `agent` in a child process. `forwarded` are the signals meant for the ranks. Returns its exit code.
pub fn run(forwarded: &[i32], agent: impl FnOnce(&Guard) -> i32) -> Result<i32> {
    // Children that the calling program had before are not ours.
    let kept: HashSet<i32> = children(std::process::id() as i32).into_iter().collect();
    let signals = Blocked::new(forwarded)?;
    let (alive, held) = signals::pipe()?;
    let adopted_before = adopts_orphans();
    adopt_orphans(true);
    // SAFETY: the child continues with Rust code on its only thread and leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => {
            let error = std::io::Error::last_os_error();
            adopt_orphans(adopted_before);
            Err(error.into())
        }
        0 => {
            drop(held);
            adopt_orphans(true);
            // SAFETY: a process may always become the leader of a new group. Keys pressed at the terminal reach only
            // the guard, which forwards them.
            unsafe { libc::setpgid(0, 0) };
            let guard = Guard { signals, alive };
            let code = catch_unwind(AssertUnwindSafe(|| agent(&guard))).unwrap_or(70);
            kill_descendants(&HashSet::new());
            // SAFETY: ends this process without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        pid => {
            drop(alive);
            let status = watch(pid, &signals);
            drop(held);
            let code = if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                let signal = libc::WTERMSIG(status);
                tell_user(&format!(
                    "the launcher's agent was killed by {}; its ranks are stopped",
                    signals::name(signal)
                ));
                kill_descendants(&kept);
                128 + signal
            };
            adopt_orphans(adopted_before);
            Ok(code)
        }
    }
}

/// Forwards signals to the agent until it ends. Returns its status.
fn watch(pid: i32, signals: &Blocked) -> i32 {
    loop {
        let mut status = 0;
        // SAFETY: waits for our own child.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 => {}
            ended if ended == pid => return status,
            // The calling program has set children to be reaped by the kernel.
            _ => return 0,
        }
        wait_readable([signals.fd()], 1000);
        while let Some(signal) = signals.next() {
            if signal != libc::SIGCHLD {
                // SAFETY: `pid` is our child and not reaped yet.
                unsafe { libc::kill(pid, signal) };
            }
        }
    }
}

fn adopt_orphans(on: bool) {
    // SAFETY: takes a number; a kernel that does not know the option refuses it.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, on as libc::c_ulong, 0, 0, 0) };
}

fn adopts_orphans() -> bool {
    let mut on: libc::c_int = 0;
    // SAFETY: the kernel writes an int.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on, 0, 0, 0) == 0 && on != 0 }
}

/// Parent and state of every process.
fn processes() -> HashMap<i32, (i32, u8)> {
    let mut found = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name is in parentheses and may contain anything; state and parent follow it.
        let Some((_, tail)) = text.rsplit_once(") ") else { continue };
        let mut fields = tail.split(' ');
        if let (Some(state), Some(Ok(parent))) = (fields.next(), fields.next().map(str::parse)) {
            found.insert(pid, (parent, state.as_bytes().first().copied().unwrap_or(b'?')));
        }
    }
    found
}

/// The processes whose parent is `pid`.
fn children(pid: i32) -> Vec<i32> {
    processes().into_iter().filter(|(_, (parent, _))| *parent == pid).map(|(child, _)| child).collect()
}

/// Kills all descendants of this process except `kept` and theirs, and reaps those that are its children.
pub fn kill_descendants(kept: &HashSet<i32>) {
    let me = std::process::id() as i32;
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let all = processes();
        let mut family = vec![me];
        let mut at = 0;
        while at < family.len() {
            let parent = family[at];
            family.extend(all.iter().filter(|(pid, (p, _))| *p == parent && !kept.contains(pid)).map(|(pid, _)| *pid));
            at += 1;
        }
        let mut left = 0;
        for &pid in &family[1..] {
            let (parent, state) = all[&pid];
            // SAFETY: the process was a descendant a moment ago. Its number could be reused only after it was reaped,
            // and only we reap our children.
            unsafe {
                if state != b'Z' {
                    libc::kill(pid, libc::SIGKILL);
                    left += 1;
                }
                if parent == me {
                    libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG);
                }
            }
        }
        if left == 0 || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
