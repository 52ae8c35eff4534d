//! Reading the table of contents. Every field is checked against the file before use.

use super::*;
use crate::source::Source;
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use std::ops::Range;

/// How an entry's bytes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Stored,
    Deflated,
    Other(u16),
}

/// One file of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Where its bytes are in the archive.
    pub(crate) data: Range<usize>,
    pub(crate) method: Method,
    /// Size after unpacking, as the archive claims.
    pub(crate) size: usize,
    pub(crate) crc: u32,
}

/// The contents of an archive, in the order of its directory.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) entries: IndexMap<String, Entry>,
}

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::io(format!("the zip archive is damaged or cut short: {what}"))
}

/// Little-endian fields of a record whose bounds were checked.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(|| corrupt("a record ends early"))?;
        self.0 = tail;
        Ok(head)
    }

    fn number(&mut self, n: usize) -> Result<u64> {
        Ok(self.take(n)?.iter().rev().fold(0, |x, &b| x << 8 | u64::from(b)))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    fn expect(&mut self, signature: u32, what: &str) -> Result<()> {
        if self.u32()? == signature { Ok(()) } else { Err(corrupt(format_args!("no {what} where one should be"))) }
    }
}

fn at(bytes: &[u8], start: usize) -> Result<Fields<'_>> {
    bytes.get(start..).map(Fields).ok_or_else(|| corrupt(format_args!("offset {start} is past its end")))
}

fn to_usize(x: u64) -> Result<usize> {
    usize::try_from(x).map_err(|_| corrupt("a size that memory cannot address"))
}

/// The position of the central directory, and its number of entries.
fn directory(bytes: &[u8]) -> Result<(Range<usize>, u64)> {
    // The end record may be followed by a comment of up to 65,535 bytes.
    let earliest = bytes.len().saturating_sub(END_LEN + usize::from(u16::MAX));
    let end = (earliest..(bytes.len() + 1).saturating_sub(END_LEN))
        .rev()
        .find(|&i| bytes[i..].starts_with(&END.to_le_bytes()))
        .ok_or_else(|| corrupt("its table of contents is missing"))?;
    let mut f = at(bytes, end + 4)?;
    let disks = (f.u16()?, f.u16()?);
    let (_, mut entries) = (f.u16()?, u64::from(f.u16()?));
    let (mut size, mut start) = (u64::from(f.u32()?), u64::from(f.u32()?));
    let mut limit = end;
    let locator = end.checked_sub(LOCATOR64_LEN).filter(|&i| bytes[i..].starts_with(&LOCATOR64.to_le_bytes()));
    if let Some(locator) = locator {
        let mut f = at(bytes, locator + 8)?;
        limit = to_usize(f.number(8)?)?;
        let mut f = at(bytes, limit)?;
        f.expect(END64, "64-bit end record")?;
        f.take(20)?;
        f.take(8)?;
        (entries, size, start) = (f.number(8)?, f.number(8)?, f.number(8)?);
    } else if disks != (0, 0) {
        return Err(Error::unsupported("the zip archive is split over several files; join them first"));
    }
    let (start, size) = (to_usize(start)?, to_usize(size)?);
    let stop = start.checked_add(size).filter(|&stop| stop <= limit && stop <= end);
    let stop = stop.ok_or_else(|| corrupt("its directory is outside the file"))?;
    Ok((start..stop, entries))
}

impl Archive {
    /// Reads the directory of a file and checks that its entries are inside the file and do not overlap.
    pub(crate) fn open(source: &Source) -> Result<Self> {
        let bytes = source.bytes();
        let (place, count) = directory(bytes)?;
        let mut f = Fields(&bytes[place.clone()]);
        let mut entries = IndexMap::new();
        let mut spans = Vec::new();
        for _ in 0..count {
            let (name, span, entry) = central(&mut f, bytes, place.start)?;
            spans.push(span);
            if entries.insert(name.clone(), entry).is_some() {
                return Err(corrupt(format_args!("two entries are named '{name}'")));
            }
        }
        // Entries that share bytes are how small archives claim to be large.
        spans.sort_unstable_by_key(|s| s.start);
        if spans.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err(corrupt("its entries overlap"));
        }
        Ok(Self { entries })
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Entry> {
        self.entries.get(name).ok_or_else(|| Error::io(format!("the archive has no record '{name}'")))
    }
}

/// One entry of the directory: its name, the bytes it takes up (header and all), and the position of its data.
fn central(f: &mut Fields, bytes: &[u8], directory: usize) -> Result<(String, Range<usize>, Entry)> {
    f.expect(CENTRAL, "directory entry")?;
    f.take(4)?;
    let (flags, method) = (f.u16()?, f.u16()?);
    f.take(4)?;
    let crc = f.u32()?;
    let (mut packed, mut size) = (f.number(4)?, f.number(4)?);
    let (name_len, extra_len, comment_len) = (f.u16()?, f.u16()?, f.u16()?);
    f.take(8)?;
    let mut header = f.number(4)?;
    let raw_name = f.take(name_len.into())?;
    let mut extra = Fields(f.take(extra_len.into())?);
    f.take(comment_len.into())?;
    let name = std::str::from_utf8(raw_name).map_err(|_| corrupt("the name of an entry is not UTF-8"))?.to_string();
    while extra.0.len() >= 4 {
        let (id, len) = (extra.u16()?, extra.u16()?);
        let mut field = Fields(extra.take(len.into())?);
        if id == ZIP64 {
            for value in [&mut size, &mut packed, &mut header] {
                if *value == u64::from(u32::MAX) {
                    *value = field.number(8)?;
                }
            }
        }
    }
    if flags & ENCRYPTED != 0 {
        return Err(Error::unsupported(format!("entry '{name}' of the zip archive is encrypted")));
    }
    let method = match method {
        0 => Method::Stored,
        8 => Method::Deflated,
        other => Method::Other(other),
    };
    if method == Method::Stored && packed != size {
        return Err(corrupt(format_args!("entry '{name}' is stored, but its two sizes differ")));
    }
    let header = to_usize(header)?;
    let mut local = at(bytes, header)?;
    local.expect(LOCAL, "entry header")?;
    local.take(22)?;
    let (local_name, local_extra) = (local.u16()?, local.u16()?);
    if local.take(local_name.into())? != raw_name {
        return Err(corrupt(format_args!("entry '{name}' has another name in its own header")));
    }
    let start = header + LOCAL_LEN + usize::from(local_name) + usize::from(local_extra);
    let end = start.checked_add(to_usize(packed)?).filter(|&end| end <= directory);
    let end = end.ok_or_else(|| corrupt(format_args!("the {packed} bytes of entry '{name}' reach past its end")))?;
    Ok((name, header..end, Entry { data: start..end, method, size: to_usize(size)?, crc }))
}
