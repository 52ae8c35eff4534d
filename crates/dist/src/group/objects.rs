//! Collectives on byte strings of any length, with which front ends send their objects.
//!
//! Front ends unpickle what arrives, which runs code. Each object therefore carries a seal of its sender
//! ([`ObjectSeal`]), whatever transport it takes.

use super::ProcessGroup;
use crate::launch::Secret;
use crate::store::auth::{equal, hmac};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of an object's seal.
const SEAL: usize = 32;

/// The seals of a group's objects: HMAC-SHA256 under the job's secret over group, call, number, sender and bytes. A
/// changed, foreign or repeated object is an error.
pub struct ObjectSeal {
    key: [u8; 32],
    /// Number of object collectives so far; equal on all ranks.
    collectives: AtomicU64,
    /// Number of objects sent to, and received from, a rank with a tag.
    sent: Mutex<HashMap<(usize, u32), u64>>,
    received: Mutex<HashMap<(usize, u32), u64>>,
}

/// The place of an object among all objects of its group.
#[derive(Clone, Copy)]
struct Place<'a> {
    call: &'a str,
    number: u64,
    from: usize,
    to: usize,
    tag: u32,
}

impl ObjectSeal {
    pub(crate) fn new(secret: &Secret, group: &str) -> Self {
        let key = hmac(&secret.0, &[b"objects of ", group.as_bytes()]);
        Self { key, collectives: AtomicU64::new(0), sent: Mutex::default(), received: Mutex::default() }
    }

    fn tag(&self, place: Place, bytes: &[u8]) -> [u8; SEAL] {
        let Place { call, number, from, to, tag } = place;
        let header = format!("{call} {number} {from} {to} {tag}\n");
        hmac(&self.key, &[header.as_bytes(), bytes])
    }
}

/// The number of the next object collective.
fn next_collective<G: ProcessGroup + ?Sized>(group: &G) -> u64 {
    group.object_seal().map_or(0, |seal| seal.collectives.fetch_add(1, Relaxed))
}

/// The number of the next object of a pair of ranks.
fn next_of(counts: &Mutex<HashMap<(usize, u32), u64>>, peer: usize, tag: u32) -> u64 {
    let mut counts = lock(counts);
    let count = counts.entry((peer, tag)).or_default();
    *count += 1;
    *count
}

/// An object with its seal.
fn seal<G: ProcessGroup + ?Sized>(group: &G, place: Place, bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if let Some(seal) = group.object_seal() {
        sealed.extend_from_slice(&seal.tag(place, bytes));
    }
    sealed
}

/// An object whose seal is right, without it.
fn open<G: ProcessGroup + ?Sized>(group: &G, place: Place, mut sealed: Vec<u8>) -> Result<Vec<u8>> {
    let Some(seal) = group.object_seal() else { return Ok(sealed) };
    let end = sealed.len().checked_sub(SEAL);
    match end.filter(|&end| equal(&seal.tag(place, &sealed[..end]), &sealed[end..])) {
        Some(end) => sealed.truncate(end),
        None => {
            return Err(Error::io(format!(
                "{}: the object from rank {} has a wrong seal: something on the way has changed it, or the ranks call different \
                 collectives",
                place.call, place.from
            )));
        }
    }
    Ok(sealed)
}

/// Collectives on byte strings. Lengths may differ from rank to rank.
pub trait Objects {
    /// Every rank's bytes, on every rank.
    fn all_gather_object(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// The root's bytes; other ranks pass an empty slice.
    fn broadcast_object(&self, bytes: Option<&[u8]>, root: usize) -> Result<Vec<u8>>;
    /// Every rank's bytes on the root, an empty list elsewhere.
    fn gather_object(&self, bytes: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>>;
    /// This rank's element of the root's list; other ranks pass none.
    fn scatter_object(&self, list: Option<&[Vec<u8>]>, root: usize) -> Result<Vec<u8>>;
    /// Sends bytes to a rank.
    fn send_object(&self, bytes: &[u8], to: usize, tag: u32) -> Result<()>;
    /// Receives bytes from a rank.
    fn recv_object(&self, from: usize, tag: u32) -> Result<Vec<u8>>;
}

fn length(bytes: &[u8]) -> Result<Tensor> {
    Tensor::from_slice(&[bytes.len() as i64], [1])
}

fn data(bytes: &[u8]) -> Result<Tensor> {
    Tensor::from_slice(bytes, [bytes.len()])
}

fn room(length: i64) -> Result<Tensor> {
    let n = usize::try_from(length).map_err(|_| Error::value(format!("an object of {length} bytes was announced")))?;
    Tensor::empty_with([n], DType::U8)
}

fn bytes_of(t: &Tensor) -> Result<Vec<u8>> {
    t.to_vec::<u8>()
}

impl<G: ProcessGroup + ?Sized> Objects for G {
    fn all_gather_object(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let place =
            Place { call: "all_gather_object", number: next_collective(self), from: self.rank(), to: 0, tag: 0 };
        let bytes = seal(self, place, bytes);
        let lengths = Tensor::empty_with([self.size()], DType::I64)?;
        self.all_gather_into_tensor(&lengths, &length(&bytes)?)?;
        let outputs = lengths.to_vec::<i64>()?.into_iter().map(room).collect::<Result<Vec<_>>>()?;
        self.all_gather(&outputs, &data(&bytes)?)?;
        outputs.iter().enumerate().map(|(from, t)| open(self, Place { from, ..place }, bytes_of(t)?)).collect()
    }

    fn broadcast_object(&self, bytes: Option<&[u8]>, root: usize) -> Result<Vec<u8>> {
        let own = bytes.unwrap_or_default();
        if self.rank() == root && bytes.is_none() {
            return Err(Error::value("broadcast_object: the root must pass an object"));
        }
        let place = Place { call: "broadcast_object", number: next_collective(self), from: root, to: 0, tag: 0 };
        let own = seal(self, place, own);
        let n = length(&own)?;
        self.broadcast(&n, root)?;
        let tensor = if self.rank() == root { data(&own)? } else { room(n.item()?)? };
        self.broadcast(&tensor, root)?;
        open(self, place, bytes_of(&tensor)?)
    }

    fn gather_object(&self, bytes: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
        let place = Place { call: "gather_object", number: next_collective(self), from: self.rank(), to: root, tag: 0 };
        let bytes = seal(self, place, bytes);
        // Lengths first, then the data padded to the longest: gathered tensors have one shape.
        let lengths = Tensor::empty_with([self.size()], DType::I64)?;
        self.all_gather_into_tensor(&lengths, &length(&bytes)?)?;
        let lengths = lengths.to_vec::<i64>()?;
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let mut padded = bytes;
        padded.resize(longest, 0);
        let at_root = self.rank() == root;
        let outputs = (0..if at_root { self.size() } else { 0 }).map(|_| Tensor::empty_with([longest], DType::U8));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        self.gather(&data(&padded)?, &outputs, root)?;
        if !at_root {
            return Ok(None);
        }
        let cut = outputs.iter().zip(&lengths).enumerate().map(|(from, (t, n))| {
            let mut bytes = bytes_of(t)?;
            bytes.truncate(*n as usize);
            open(self, Place { from, ..place }, bytes)
        });
        cut.collect::<Result<Vec<_>>>().map(Some)
    }

    fn scatter_object(&self, list: Option<&[Vec<u8>]>, root: usize) -> Result<Vec<u8>> {
        let list = if self.rank() == root { list.unwrap_or_default() } else { &[] };
        if self.rank() == root && list.len() != self.size() {
            return Err(Error::value(format!(
                "scatter_object: {} objects for a group of {}; one for each rank is needed",
                list.len(),
                self.size()
            )));
        }
        let place =
            Place { call: "scatter_object", number: next_collective(self), from: root, to: self.rank(), tag: 0 };
        let list: Vec<Vec<u8>> =
            list.iter().enumerate().map(|(to, bytes)| seal(self, Place { to, ..place }, bytes)).collect();
        let longest = length(list.iter().max_by_key(|bytes| bytes.len()).map_or(&[], Vec::as_slice))?;
        self.broadcast(&longest, root)?;
        let longest = longest.item::<i64>()?;
        let own = length(&[])?;
        let lengths = list.iter().map(|bytes| length(bytes)).collect::<Result<Vec<_>>>()?;
        self.scatter(&own, &lengths, root)?;
        let pad = |bytes: &Vec<u8>| {
            let mut padded = bytes.clone();
            padded.resize(longest as usize, 0);
            data(&padded)
        };
        let inputs = list.iter().map(pad).collect::<Result<Vec<_>>>()?;
        let output = room(longest)?;
        self.scatter(&output, &inputs, root)?;
        let mut bytes = bytes_of(&output)?;
        bytes.truncate(own.item::<i64>()? as usize);
        open(self, place, bytes)
    }

    fn send_object(&self, bytes: &[u8], to: usize, tag: u32) -> Result<()> {
        let number = self.object_seal().map_or(0, |seal| next_of(&seal.sent, to, tag));
        let bytes = seal(self, Place { call: "send_object", number, from: self.rank(), to, tag }, bytes);
        self.send(&length(&bytes)?, to, tag)?;
        self.send(&data(&bytes)?, to, tag)
    }

    fn recv_object(&self, from: usize, tag: u32) -> Result<Vec<u8>> {
        let n = length(&[])?;
        self.recv(&n, from, tag)?;
        let tensor = room(n.item()?)?;
        self.recv(&tensor, from, tag)?;
        let number = self.object_seal().map_or(0, |seal| next_of(&seal.received, from, tag));
        open(self, Place { call: "send_object", number, from, to: self.rank(), tag }, bytes_of(&tensor)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_depend_on_sender_number_group_and_bytes() {
        let secret = Secret::new("s");
        let seal = ObjectSeal::new(&secret, "world");
        let place = Place { call: "send_object", number: 1, from: 0, to: 1, tag: 0 };
        let tag = seal.tag(place, b"object");
        assert_eq!(ObjectSeal::new(&secret, "world").tag(place, b"object"), tag);
        for other in [
            seal.tag(place, b"objecT"),
            seal.tag(Place { number: 2, ..place }, b"object"),
            seal.tag(Place { from: 2, ..place }, b"object"),
            seal.tag(Place { to: 2, ..place }, b"object"),
            seal.tag(Place { tag: 2, ..place }, b"object"),
            seal.tag(Place { call: "broadcast_object", ..place }, b"object"),
            ObjectSeal::new(&secret, "group1").tag(place, b"object"),
            ObjectSeal::new(&Secret::new("t"), "world").tag(place, b"object"),
        ] {
            assert_ne!(other, tag);
        }
        assert_eq!((next_of(&seal.sent, 1, 0), next_of(&seal.sent, 1, 0), next_of(&seal.sent, 2, 0)), (1, 2, 1));
    }
}
