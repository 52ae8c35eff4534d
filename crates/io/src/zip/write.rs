//! Writing archives in one pass, without going back: sizes are known before, checksums follow the data.

use super::*;
use rushlight_core::Result;
use std::io::Write;

/// Data of entries starts at multiples of this, so that a mapped archive can be used in place.
const ALIGN: u64 = 64;

const MAX32: u64 = u32::MAX as u64;

struct Done {
    name: String,
    crc: u32,
    size: u64,
    header: u64,
}

/// An archive being written. Entries are stored, not compressed.
///
/// The layout equals that of PyTorch's own writer (padding in an extra field `FB`, descriptors behind the
/// data), since PyTorch can be set to compute a tensor's offset instead of looking it up.
pub(crate) struct Writer<'a, W: Write> {
    out: &'a mut W,
    position: u64,
    done: Vec<Done>,
}

impl<'a, W: Write> Writer<'a, W> {
    pub(crate) fn new(out: &'a mut W) -> Self {
        Self { out, position: 0, done: Vec::new() }
    }

    /// An entry whose bytes are at hand.
    pub(crate) fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.entry(name, bytes.len() as u64, |out| {
            out.write_all(bytes)?;
            Ok(crc32fast::hash(bytes))
        })
    }

    /// An entry of `size` bytes that `data` writes; it gives their CRC-32.
    pub(crate) fn entry(&mut self, name: &str, size: u64, data: impl FnOnce(&mut W) -> Result<u32>) -> Result<()> {
        let header = self.position;
        let wide = header >= MAX32 || size >= MAX32;
        let mut extra = Vec::new();
        if wide {
            extra.extend(zip64(size, header));
        }
        let unpadded = header + (LOCAL_LEN + name.len() + extra.len() + 4) as u64;
        let padding = unpadded.next_multiple_of(ALIGN) - unpadded;
        extra.extend(b"FB");
        extra.extend((padding as u16).to_le_bytes());
        extra.resize(extra.len() + padding as usize, b'Z');
        let flags = UTF8 | if size > 0 { HAS_DESCRIPTOR } else { 0 };

        let mut head = Vec::with_capacity(LOCAL_LEN + name.len() + extra.len());
        head.extend(LOCAL.to_le_bytes());
        head.extend(version(wide).to_le_bytes());
        head.extend(flags.to_le_bytes());
        // Stored; no time; checksum and sizes come later.
        head.extend([0; 18]);
        head.extend((name.len() as u16).to_le_bytes());
        head.extend((extra.len() as u16).to_le_bytes());
        head.extend(name.as_bytes());
        head.extend(extra);
        self.out.write_all(&head)?;

        let crc = data(self.out)?;
        self.position += head.len() as u64 + size;
        if size > 0 {
            let mut tail = DESCRIPTOR.to_le_bytes().to_vec();
            tail.extend(crc.to_le_bytes());
            let width = if wide { 8 } else { 4 };
            tail.extend(&size.to_le_bytes()[..width]);
            tail.extend(&size.to_le_bytes()[..width]);
            self.out.write_all(&tail)?;
            self.position += tail.len() as u64;
        }
        self.done.push(Done { name: name.into(), crc, size, header });
        Ok(())
    }

    /// A checksum of all entries so far, by names and by contents.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let (mut names, mut contents) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
        for entry in &self.done {
            names.update(entry.name.as_bytes());
            contents.update(&entry.crc.to_le_bytes());
        }
        (names.finalize().into(), contents.finalize().into())
    }

    /// Writes the directory.
    pub(crate) fn finish(self) -> Result<()> {
        let start = self.position;
        let mut table = Vec::new();
        for entry in &self.done {
            let wide = entry.header >= MAX32 || entry.size >= MAX32;
            let extra = if wide { zip64(entry.size, entry.header) } else { Vec::new() };
            let flags = UTF8 | if entry.size > 0 { HAS_DESCRIPTOR } else { 0 };
            table.extend(CENTRAL.to_le_bytes());
            table.extend(version(wide).to_le_bytes());
            table.extend(version(wide).to_le_bytes());
            table.extend(flags.to_le_bytes());
            table.extend([0; 6]);
            table.extend(entry.crc.to_le_bytes());
            let size = (entry.size.min(MAX32) as u32).to_le_bytes();
            table.extend(size);
            table.extend(size);
            table.extend((entry.name.len() as u16).to_le_bytes());
            table.extend((extra.len() as u16).to_le_bytes());
            table.extend([0; 10]);
            table.extend((entry.header.min(MAX32) as u32).to_le_bytes());
            table.extend(entry.name.as_bytes());
            table.extend(extra);
        }
        let (size, count) = (table.len() as u64, self.done.len() as u64);
        let end64 = start + size;
        if count >= u64::from(u16::MAX) || start >= MAX32 || size >= MAX32 {
            table.extend(END64.to_le_bytes());
            table.extend((END64_LEN as u64 - 12).to_le_bytes());
            table.extend(version(true).to_le_bytes());
            table.extend(version(true).to_le_bytes());
            table.extend([0; 8]);
            for x in [count, count, size, start] {
                table.extend(x.to_le_bytes());
            }
            table.extend(LOCATOR64.to_le_bytes());
            table.extend([0; 4]);
            table.extend(end64.to_le_bytes());
            table.extend(1u32.to_le_bytes());
        }
        table.extend(END.to_le_bytes());
        table.extend([0; 4]);
        let count = (count.min(u16::MAX.into()) as u16).to_le_bytes();
        table.extend(count);
        table.extend(count);
        table.extend((size.min(MAX32) as u32).to_le_bytes());
        table.extend((start.min(MAX32) as u32).to_le_bytes());
        table.extend([0; 2]);
        self.out.write_all(&table)?;
        Ok(self.out.flush()?)
    }
}

/// The version of the format a reader must know.
fn version(wide: bool) -> u16 {
    if wide { 45 } else { 20 }
}

/// The zip64 extra field: both sizes, then the header's offset.
fn zip64(size: u64, header: u64) -> Vec<u8> {
    let mut values = Vec::new();
    if size >= MAX32 {
        values.extend(size.to_le_bytes());
        values.extend(size.to_le_bytes());
    }
    if header >= MAX32 {
        values.extend(header.to_le_bytes());
    }
    let mut field = ZIP64.to_le_bytes().to_vec();
    field.extend((values.len() as u16).to_le_bytes());
    field.extend(values);
    field
}
