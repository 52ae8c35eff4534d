//! Collectives on byte strings of any length, with which front ends send their objects.

use super::ProcessGroup;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

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
        let lengths = Tensor::empty_with([self.size()], DType::I64)?;
        self.all_gather_into_tensor(&lengths, &length(bytes)?)?;
        let outputs = lengths.to_vec::<i64>()?.into_iter().map(room).collect::<Result<Vec<_>>>()?;
        self.all_gather(&outputs, &data(bytes)?)?;
        outputs.iter().map(bytes_of).collect()
    }

    fn broadcast_object(&self, bytes: Option<&[u8]>, root: usize) -> Result<Vec<u8>> {
        let own = bytes.unwrap_or_default();
        if self.rank() == root && bytes.is_none() {
            return Err(Error::value("broadcast_object: the root must pass an object"));
        }
        let n = length(own)?;
        self.broadcast(&n, root)?;
        let tensor = if self.rank() == root { data(own)? } else { room(n.item()?)? };
        self.broadcast(&tensor, root)?;
        bytes_of(&tensor)
    }

    fn gather_object(&self, bytes: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
        // Lengths first, then the data padded to the longest: gathered tensors have one shape.
        let lengths = Tensor::empty_with([self.size()], DType::I64)?;
        self.all_gather_into_tensor(&lengths, &length(bytes)?)?;
        let lengths = lengths.to_vec::<i64>()?;
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let mut padded = bytes.to_vec();
        padded.resize(longest, 0);
        let at_root = self.rank() == root;
        let outputs = (0..if at_root { self.size() } else { 0 }).map(|_| Tensor::empty_with([longest], DType::U8));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        self.gather(&data(&padded)?, &outputs, root)?;
        if !at_root {
            return Ok(None);
        }
        let cut = outputs.iter().zip(&lengths).map(|(t, n)| {
            let mut bytes = bytes_of(t)?;
            bytes.truncate(*n as usize);
            Ok(bytes)
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
        Ok(bytes)
    }

    fn send_object(&self, bytes: &[u8], to: usize, tag: u32) -> Result<()> {
        self.send(&length(bytes)?, to, tag)?;
        self.send(&data(bytes)?, to, tag)
    }

    fn recv_object(&self, from: usize, tag: u32) -> Result<Vec<u8>> {
        let n = length(&[])?;
        self.recv(&n, from, tag)?;
        let tensor = room(n.item()?)?;
        self.recv(&tensor, from, tag)?;
        bytes_of(&tensor)
    }
}
