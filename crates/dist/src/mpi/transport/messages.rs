//! Messages between two ranks by MPI.

use super::{GRACE, MpiTransport};
use crate::comm::{Call, Span};
use crate::mpi::abi::{Handle, Status};
use rushlight_core::{Error, ErrorKind, Result};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

impl MpiTransport {
    /// Messages (the other rank, a tag, the bytes, whether to send), run concurrently.
    ///
    /// # Safety
    /// As for the methods of [`Transport`](crate::comm::Transport).
    pub(super) unsafe fn messages(&self, messages: &[(usize, c_int, Span, bool)], call: &Call) -> Result<()> {
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        let mut requests: Vec<(Handle, usize, usize)> = Vec::new();
        for (index, &(peer, tag, span, sends)) in messages.iter().enumerate() {
            for part in parts(span, self.chunk) {
                let (mut request, n, peer): (Handle, _, _) = (0, part.len as c_int, peer as c_int);
                // SAFETY: by contract.
                let code = unsafe {
                    match sends {
                        true => (f.isend)(part.ptr.cast(), n, c.byte, peer, tag, self.comm, &mut request),
                        false => (f.irecv)(part.ptr.cast(), n, c.byte, peer, tag, self.comm, &mut request),
                    }
                };
                if let Err(e) = self.runtime.check(if sends { "MPI_Isend" } else { "MPI_Irecv" }, code) {
                    self.runtime.failed.store(true, Relaxed);
                    return Err(e);
                }
                requests.push((request, index, part.len));
            }
        }
        for (request, index, len) in &mut requests {
            let (peer, _, _, sends) = messages[*index];
            let name = if sends { "MPI_Isend" } else { "MPI_Irecv" };
            // SAFETY: by contract.
            let status = unsafe { self.wait(request, name, call) }.map_err(|e| {
                let (rank, seconds) = (self.ranks[peer], call.limit.timeout.as_secs_f32());
                match e.kind() == ErrorKind::Timeout {
                    true => Error::timeout(format!("timed out after {seconds} s waiting for rank {rank}")),
                    false => Error::new(e.kind(), format!("{e} (with rank {rank})")),
                }
            })?;
            if sends {
                continue;
            }
            let mut got = 0;
            // SAFETY: the status of a receive that is done.
            self.runtime.check("MPI_Get_count", unsafe { (f.get_count)(&status, c.byte, &mut got) })?;
            if got as usize != *len {
                return Err(Error::value(format!(
                    "rank {} sent {got} bytes, this rank expected {len} with {}",
                    self.ranks[peer],
                    call.signature.text()
                )));
            }
        }
        Ok(())
    }

    /// MPI's tag for a message's.
    pub(super) fn tag(&self, tag: u32) -> Result<c_int> {
        match u64::from(tag) + 1 {
            tag if tag <= self.runtime.max_tag => Ok(tag as c_int),
            _ => {
                Err(Error::value(format!("the tag {tag} is larger than this MPI takes ({})", self.runtime.max_tag - 1)))
            }
        }
    }

    /// Waits for a message with a tag of MPI's from any rank; returns the rank.
    pub(super) fn probe_all(&self, tag: c_int, call: &Call) -> Result<usize> {
        let others = || (0..self.size).filter(|&rank| rank != self.rank);
        let mut left: Option<Instant> = None;
        loop {
            for rank in others() {
                let (mut found, mut status) = (0, Status::default());
                // SAFETY: a valid communicator and places for the answers.
                let code = unsafe {
                    (self.runtime.mpi.functions.iprobe)(rank as c_int, tag, self.comm, &mut found, &mut status)
                };
                self.runtime.check("MPI_Iprobe", code)?;
                if found != 0 {
                    return Ok(rank);
                }
            }
            call.limit.check(|| "a message of any rank".into())?;
            if others().all(|rank| call.limit.abort.has_departed(self.ranks[rank])) {
                // Their last messages may be under way.
                if *left.get_or_insert_with(Instant::now) + GRACE < Instant::now() {
                    return Err(Error::io("a message of any rank cannot come: all others have left the job"));
                }
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Sends a copy without waiting for its receiver: two ranks that both send first must not deadlock.
    ///
    /// # Safety
    /// As for the methods of [`Transport`](crate::comm::Transport).
    pub(super) unsafe fn send_copy(&self, to: usize, tag: c_int, data: Span, call: &Call) -> Result<()> {
        let (f, c) = (&self.runtime.mpi.functions, &self.runtime.mpi.constants);
        let rank = self.ranks[to];
        for part in parts(data, self.chunk) {
            self.runtime.wait_for_room(part.len, &call.limit, || format!("rank {rank} to receive earlier messages"))?;
            // SAFETY: by contract.
            let bytes = unsafe { std::slice::from_raw_parts(part.ptr, part.len) }.to_vec();
            let mut request: Handle = 0;
            // SAFETY: the bytes move along with the request.
            let code = unsafe {
                (f.isend)(bytes.as_ptr().cast(), part.len as c_int, c.byte, to as c_int, tag, self.comm, &mut request)
            };
            self.runtime.check("MPI_Isend", code)?;
            self.runtime.keep_sending(request, bytes)?;
        }
        Ok(())
    }
}

/// The pieces of a message: at least one.
fn parts(span: Span, chunk: usize) -> impl Iterator<Item = Span> {
    (0..span.len.max(1)).step_by(chunk).map(move |start| span.part(start, chunk))
}
