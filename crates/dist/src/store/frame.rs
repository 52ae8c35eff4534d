//! Messages between a store and its clients: a length, a type byte, byte strings. On the wire each is followed by its
//! tag ([`super::auth::Seal`]).
//!
//! Request: `u32 length | u8 op | u64 timeout in ms | strings`. Reply: `u32 length | u8 status | strings`. A string
//! is `u32 length | bytes`. All little-endian; `length` excludes itself and is bounded by [`MAX_FRAME`].

use super::table::Op;
use rushlight_core::{Error, Result};

/// The longest message.
pub(crate) const MAX_FRAME: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    TimedOut,
    Failed,
}

fn strings<A: AsRef<[u8]>>(out: &mut Vec<u8>, items: &[A]) {
    for item in items {
        out.extend_from_slice(&(item.as_ref().len() as u32).to_le_bytes());
        out.extend_from_slice(item.as_ref());
    }
}

/// Writes the length in front once it is known.
fn finish(mut out: Vec<u8>) -> Result<Vec<u8>> {
    let length = out.len() - 4;
    if length > MAX_FRAME {
        return Err(Error::value(format!(
            "store: a message of {length} bytes is longer than the {MAX_FRAME} that a store takes"
        )));
    }
    out[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(out)
}

pub(crate) fn request<A: AsRef<[u8]>>(op: Op, timeout_ms: u64, args: &[A]) -> Result<Vec<u8>> {
    let mut out = vec![0; 4];
    out.push(op as u8);
    out.extend_from_slice(&timeout_ms.to_le_bytes());
    strings(&mut out, args);
    finish(out)
}

pub(crate) fn reply<A: AsRef<[u8]>>(status: Status, items: &[A]) -> Result<Vec<u8>> {
    let mut out = vec![0; 4];
    out.push(status as u8);
    strings(&mut out, items);
    finish(out)
}

/// The first complete message of a buffer, without its length, and the bytes used; `None` if more must be read.
pub(crate) fn split(buffer: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    if length > MAX_FRAME {
        return Err(Error::io(format!("store: a message of {length} bytes was announced, more than {MAX_FRAME}")));
    }
    Ok(buffer[4..].get(..length).map(|body| (body, 4 + length)))
}

fn malformed() -> Error {
    Error::io("store: a malformed message")
}

fn parse_strings(mut rest: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    while !rest.is_empty() {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        let length = u32::from_le_bytes(*head) as usize;
        let (item, tail) = tail.split_at_checked(length).ok_or_else(malformed)?;
        items.push(item.to_vec());
        rest = tail;
    }
    Ok(items)
}

pub(crate) fn parse_request(body: &[u8]) -> Result<(Op, u64, Vec<Vec<u8>>)> {
    let (&op, rest) = body.split_first().ok_or_else(malformed)?;
    let (timeout, rest) = rest.split_first_chunk::<8>().ok_or_else(malformed)?;
    let op = Op::from_byte(op).ok_or_else(malformed)?;
    Ok((op, u64::from_le_bytes(*timeout), parse_strings(rest)?))
}

pub(crate) fn parse_reply(body: &[u8]) -> Result<(Status, Vec<Vec<u8>>)> {
    let (&status, rest) = body.split_first().ok_or_else(malformed)?;
    let status = match status {
        0 => Status::Done,
        1 => Status::TimedOut,
        2 => Status::Failed,
        _ => return Err(malformed()),
    };
    Ok((status, parse_strings(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_round_trip() {
        let bytes = request(Op::CompareSet, 77, &[b"k".as_slice(), b"", b"value"]).unwrap();
        let (body, used) = split(&bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        let (op, timeout, args) = parse_request(body).unwrap();
        assert_eq!((op, timeout, args.len(), args[2].as_slice()), (Op::CompareSet, 77, 3, b"value".as_slice()));
        for cut in 0..bytes.len() {
            assert!(split(&bytes[..cut]).unwrap().is_none());
        }
        let bytes = reply(Status::Failed, &[b"why"]).unwrap();
        assert_eq!(parse_reply(split(&bytes).unwrap().unwrap().0).unwrap().0, Status::Failed);
    }

    #[test]
    fn random_bytes_are_errors_or_messages() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        for round in 0..20_000 {
            let mut bytes: Vec<u8> = (0..round % 64).map(|_| next()).collect();
            if round % 2 == 0 && bytes.len() > 4 {
                // A length that fits, so that the body is looked at too.
                let length = (bytes.len() - 4) as u32;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4] %= 14;
            }
            super::super::read_messages(&bytes);
        }
        assert!(split(&[0xff; 8]).is_err());
        assert!(request(Op::Set, 0, &[vec![0; MAX_FRAME + 1]]).is_err());
    }
}
