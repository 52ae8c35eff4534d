//! Mutual proof that two processes share a job's secret, without sending it.
//!
//! The side that accepts sends a random challenge; the side that connects answers with its own challenge and an
//! HMAC-SHA256 over both; the accepting side proves itself likewise. The hash includes purpose and role, so
//! that no answer can be reflected or used for another kind of connection.

use crate::launch::Secret;
use rushlight_core::Result;
use sha2::{Digest, Sha256};
use std::io::{Error, ErrorKind, Read, Write};

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Store,
    Link,
}

impl Purpose {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Purpose::Store => b"RLstore1",
            Purpose::Link => b"RLlink_1",
        }
    }
}

/// Bytes of the greeting: magic and challenge.
pub(crate) const GREETING: usize = 40;
/// Bytes of the answer: challenge and proof.
pub(crate) const ANSWER: usize = 64;
/// Bytes of the accepting side's proof; all zero if it refuses.
pub(crate) const PROOF: usize = 32;

/// HMAC-SHA256 of the parts, one after another.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0u8; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner.finalize());
    outer.finalize().into()
}

/// Constant-time equality.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0u8, |acc, (x, y)| acc | (x ^ y))) == 0
}

/// The accepting side of a handshake.
pub(crate) struct Challenge {
    purpose: Purpose,
    nonce: [u8; 32],
}

impl Challenge {
    pub(crate) fn new(purpose: Purpose) -> Result<Self> {
        Ok(Self { purpose, nonce: crate::launch::random_bytes()? })
    }

    pub(crate) fn greeting(&self) -> [u8; GREETING] {
        let mut out = [0; GREETING];
        out[..8].copy_from_slice(self.purpose.magic());
        out[8..].copy_from_slice(&self.nonce);
        out
    }

    /// The proof to send back, or `None` if the answer does not prove the secret.
    pub(crate) fn verify(&self, secret: &Secret, answer: &[u8; ANSWER]) -> Option<[u8; PROOF]> {
        let (nonce, proof) = answer.split_at(32);
        let expected = prove(secret, self.purpose, b"connect", &self.nonce, nonce);
        equal(&expected, proof).then(|| prove(secret, self.purpose, b"accept ", &self.nonce, nonce))
    }
}

fn prove(secret: &Secret, purpose: Purpose, role: &[u8], accepting: &[u8], connecting: &[u8]) -> [u8; 32] {
    hmac(&secret.0, &[purpose.magic(), role, accepting, connecting])
}

/// The connecting side of a handshake, over a stream with timeouts.
///
/// `PermissionDenied` means that the other side does not have the same secret, `InvalidData` that it is not one of
/// ours.
pub(crate) fn connect(stream: &mut (impl Read + Write), secret: &Secret, purpose: Purpose) -> std::io::Result<()> {
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting)?;
    if greeting[..8] != *purpose.magic() {
        return Err(Error::new(ErrorKind::InvalidData, "the other side uses another protocol"));
    }
    let nonce = crate::launch::random_bytes().map_err(|e| Error::other(e.to_string()))?;
    let mut answer = [0; ANSWER];
    answer[..32].copy_from_slice(&nonce);
    answer[32..].copy_from_slice(&prove(secret, purpose, b"connect", &greeting[8..], &nonce));
    stream.write_all(&answer)?;
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof)?;
    if !equal(&proof, &prove(secret, purpose, b"accept ", &greeting[8..], &nonce)) {
        return Err(Error::new(ErrorKind::PermissionDenied, "the other side has another secret"));
    }
    Ok(())
}

/// The accepting side of a handshake, over a stream with timeouts.
pub(crate) fn accept(stream: &mut (impl Read + Write), secret: &Secret, purpose: Purpose) -> std::io::Result<()> {
    let challenge = Challenge::new(purpose).map_err(|e| Error::other(e.to_string()))?;
    stream.write_all(&challenge.greeting())?;
    let mut answer = [0; ANSWER];
    stream.read_exact(&mut answer)?;
    match challenge.verify(secret, &answer) {
        Some(proof) => stream.write_all(&proof),
        None => {
            stream.write_all(&[0; PROOF])?;
            Err(Error::new(ErrorKind::PermissionDenied, "wrong proof of the job's secret"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_of_rfc_4231() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(hmac(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"])),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn proofs_depend_on_secret_purpose_and_challenge() {
        let (good, bad) = (Secret::new("a"), Secret::new("b"));
        let challenge = Challenge::new(Purpose::Store).unwrap();
        let mut answer = [7u8; ANSWER];
        answer[32..].copy_from_slice(&prove(&good, Purpose::Store, b"connect", &challenge.nonce, &[7; 32]));
        assert!(challenge.verify(&good, &answer).is_some());
        assert!(challenge.verify(&bad, &answer).is_none());
        assert!(Challenge::new(Purpose::Store).unwrap().verify(&good, &answer).is_none());
        assert!(Challenge { purpose: Purpose::Link, nonce: challenge.nonce }.verify(&good, &answer).is_none());
        answer[63] ^= 1;
        assert!(challenge.verify(&good, &answer).is_none());
        assert!(equal(b"", b"") && !equal(b"a", b"ab"));
    }
}
