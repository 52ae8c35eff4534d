//! Mutual proof that two processes share a job's secret, without sending it, and the keys of their connection.
//!
//! The side that accepts sends a random challenge; the side that connects answers with its own challenge, the address
//! it has dialled and an HMAC-SHA256 over all of it; the accepting side proves itself likewise. The hash includes
//! purpose and role, so that no answer can be reflected or used for another kind of connection, and the target, so that
//! a connection cannot be passed on to another process of the job.
//!
//! Both sides derive a key for each direction from the secret and the handshake. Every later frame carries a tag over
//! its number and its bytes ([`Seal`]): whoever relays the handshake cannot add, change, repeat or reorder frames.

use crate::launch::Secret;
use rushlight_core::Result;
use sha2::{Digest, Sha256};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Allows connections through address translation, where the dialled address is not the accepting side's own.
pub(crate) const NAT_VARIABLE: &str = "RUSHLIGHT_ALLOW_NAT";

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Store,
    /// Messages to this rank of the world.
    Link(usize),
}

impl Purpose {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Purpose::Store => b"RLstore2",
            Purpose::Link(_) => b"RLlink_2",
        }
    }

    fn rank(self) -> u64 {
        match self {
            Purpose::Store => 0,
            Purpose::Link(rank) => rank as u64,
        }
    }
}

/// Bytes of the greeting: magic and challenge.
pub(crate) const GREETING: usize = 40;
/// Bytes of the target: address (IPv4 as IPv6), port, rank.
const TARGET: usize = 26;
/// Bytes of the answer: challenge, target and proof.
pub(crate) const ANSWER: usize = 64 + TARGET;
/// Bytes of the accepting side's proof; all zero if it refuses.
pub(crate) const PROOF: usize = 32;
/// Bytes of a frame's tag.
pub(crate) const TAG: usize = 16;
/// Roles in proofs and keys.
const CONNECTS: &[u8] = b"connects";
const ACCEPTS: &[u8] = b"accepts ";
const ELSEWHERE: &[u8] = b"elsewher";
const KEY_OUT: &[u8] = b"key out ";
const KEY_BACK: &[u8] = b"key back";

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

/// The target of a connection.
fn target(address: SocketAddr, purpose: Purpose) -> [u8; TARGET] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut out = [0; TARGET];
    out[..16].copy_from_slice(&ip.octets());
    out[16..18].copy_from_slice(&address.port().to_le_bytes());
    out[18..].copy_from_slice(&purpose.rank().to_le_bytes());
    out
}

/// A handshake's values, which both sides know.
struct Transcript<'a> {
    purpose: Purpose,
    accepting: &'a [u8],
    connecting: &'a [u8],
    target: &'a [u8],
}

impl Transcript<'_> {
    fn prove(&self, secret: &Secret, role: &[u8]) -> [u8; 32] {
        hmac(&secret.0, &[self.purpose.magic(), role, self.accepting, self.connecting, self.target])
    }

    /// The seals of the connecting side's frames and of the accepting side's.
    fn seals(&self, secret: &Secret) -> (Seal, Seal) {
        (Seal::new(self.prove(secret, KEY_OUT)), Seal::new(self.prove(secret, KEY_BACK)))
    }
}

/// Tags of the frames of one direction, in order.
pub(crate) struct Seal {
    /// The hash states after the padded key.
    inner: Sha256,
    outer: Sha256,
    next: u64,
}

impl Seal {
    fn new(key: [u8; 32]) -> Self {
        let mut block = [0u8; 64];
        block[..32].copy_from_slice(&key);
        let padded = |byte: u8| Sha256::new().chain_update(block.map(|b| b ^ byte));
        Self { inner: padded(0x36), outer: padded(0x5c), next: 0 }
    }

    /// The tag of the next frame. Its number advances by [`Seal::advance`] or [`Seal::verify`] only: a frame that is
    /// written in several parts keeps its tag.
    pub(crate) fn tag(&self, frame: &[u8]) -> [u8; TAG] {
        let inner = self.inner.clone().chain_update(self.next.to_le_bytes()).chain_update(frame);
        let outer = self.outer.clone().chain_update(inner.finalize()).finalize();
        let mut tag = [0; TAG];
        tag.copy_from_slice(&outer[..TAG]);
        tag
    }

    /// Counts a frame.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// Appends the tag of the next frame, and counts it.
    pub(crate) fn seal(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        let tag = self.tag(&frame);
        self.advance();
        frame.extend_from_slice(&tag);
        frame
    }

    /// Whether a tag belongs to the next frame. Counts the frame if so.
    pub(crate) fn verify(&mut self, frame: &[u8], tag: &[u8]) -> bool {
        let good = equal(&self.tag(frame), tag);
        self.next += u64::from(good);
        good
    }
}

/// The accepting side of a handshake.
pub(crate) struct Challenge {
    purpose: Purpose,
    nonce: [u8; 32],
}

/// What the accepting side found of an answer.
pub(crate) enum HandshakeResult {
    /// The proof to send back, and the seals of this side's frames and of the other's.
    Accepted([u8; PROOF], Box<(Seal, Seal)>),
    /// The other side has the secret, but has dialled another address, port or rank. The bytes tell it so.
    Elsewhere([u8; PROOF]),
    Refused,
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

    /// Checks an answer. `local` is this end of the connection.
    pub(crate) fn verify(&self, secret: &Secret, answer: &[u8; ANSWER], local: SocketAddr) -> HandshakeResult {
        let (nonce, rest) = answer.split_at(32);
        let (dialled, proof) = rest.split_at(TARGET);
        let transcript =
            Transcript { purpose: self.purpose, accepting: &self.nonce, connecting: nonce, target: dialled };
        if !equal(&transcript.prove(secret, CONNECTS), proof) {
            return HandshakeResult::Refused;
        }
        let own = target(local, self.purpose);
        let translated = std::env::var(NAT_VARIABLE).is_ok_and(|value| value == "1");
        // Behind address translation only the rank is known.
        let known = if translated { 18.. } else { 0.. };
        if dialled[known.clone()] != own[known] {
            return HandshakeResult::Elsewhere(transcript.prove(secret, ELSEWHERE));
        }
        let (theirs, ours) = transcript.seals(secret);
        HandshakeResult::Accepted(transcript.prove(secret, ACCEPTS), Box::new((ours, theirs)))
    }
}

/// A stream that fails when a moment has passed, however the bytes trickle.
struct Bounded<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Bounded<'_> {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Error::new(ErrorKind::WouldBlock, "the handshake took too long"))
        } else {
            Ok(Some(left))
        }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The connecting side of a handshake: the seals of this side's frames and of the other's.
///
/// `PermissionDenied` means that the other side does not have the same secret, `InvalidData` that it is not one of
/// ours, `WouldBlock` that it did not answer in time.
pub(crate) fn connect(
    stream: &TcpStream,
    secret: &Secret,
    purpose: Purpose,
    address: SocketAddr,
    limit: Duration,
) -> std::io::Result<(Seal, Seal)> {
    let mut stream = Bounded { stream, deadline: Instant::now() + limit };
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting)?;
    if greeting[..8] != *purpose.magic() {
        return Err(Error::new(ErrorKind::InvalidData, "the other side uses another protocol"));
    }
    let nonce = crate::launch::random_bytes().map_err(|e| Error::other(e.to_string()))?;
    let dialled = target(address, purpose);
    let transcript = Transcript { purpose, accepting: &greeting[8..], connecting: &nonce, target: &dialled };
    let mut answer = [0; ANSWER];
    answer[..32].copy_from_slice(&nonce);
    answer[32..32 + TARGET].copy_from_slice(&dialled);
    answer[32 + TARGET..].copy_from_slice(&transcript.prove(secret, CONNECTS));
    stream.write_all(&answer)?;
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof)?;
    if equal(&proof, &transcript.prove(secret, ELSEWHERE)) {
        return Err(Error::new(
            ErrorKind::AddrNotAvailable,
            format!(
                "a process of this job answered that {address} is not its address. Something relays the connection; if it is \
                 an address translation of your own (a published container port), set {NAT_VARIABLE}=1"
            ),
        ));
    }
    if !equal(&proof, &transcript.prove(secret, ACCEPTS)) {
        return Err(Error::new(ErrorKind::PermissionDenied, "the other side has another secret"));
    }
    Ok(transcript.seals(secret))
}

/// The accepting side of a handshake: the seals of this side's frames and of the other's.
pub(crate) fn accept(
    stream: &TcpStream,
    secret: &Secret,
    purpose: Purpose,
    limit: Duration,
) -> std::io::Result<(Seal, Seal)> {
    let local = stream.local_addr()?;
    let mut stream = Bounded { stream, deadline: Instant::now() + limit };
    let challenge = Challenge::new(purpose).map_err(|e| Error::other(e.to_string()))?;
    stream.write_all(&challenge.greeting())?;
    let mut answer = [0; ANSWER];
    stream.read_exact(&mut answer)?;
    match challenge.verify(secret, &answer, local) {
        HandshakeResult::Accepted(proof, seals) => {
            stream.write_all(&proof)?;
            Ok(*seals)
        }
        HandshakeResult::Elsewhere(told) => {
            stream.write_all(&told)?;
            Err(Error::new(ErrorKind::AddrNotAvailable, format!("it has dialled another address or rank than {local}")))
        }
        HandshakeResult::Refused => {
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
        // A seal is the same function over the frame's number and the frame.
        let tag = Seal::new([7; 32]).tag(b"frame");
        assert_eq!(tag, hmac(&[7; 32], &[&0u64.to_le_bytes(), b"frame"])[..TAG]);
    }

    fn answer(secret: &Secret, purpose: Purpose, accepting: &[u8; 32], dialled: &str) -> [u8; ANSWER] {
        let target = target(dialled.parse().unwrap(), purpose);
        let transcript = Transcript { purpose, accepting, connecting: &[7; 32], target: &target };
        let mut answer = [7u8; ANSWER];
        answer[32..32 + TARGET].copy_from_slice(&target);
        answer[32 + TARGET..].copy_from_slice(&transcript.prove(secret, CONNECTS));
        answer
    }

    #[test]
    fn proofs_depend_on_secret_purpose_challenge_and_target() {
        let (good, bad) = (Secret::new("a"), Secret::new("b"));
        let local: SocketAddr = "10.0.0.1:77".parse().unwrap();
        let challenge = Challenge::new(Purpose::Store).unwrap();
        let mut told = answer(&good, Purpose::Store, &challenge.nonce, "10.0.0.1:77");
        let verdict =
            |challenge: &Challenge, secret: &Secret, told: &[u8; ANSWER]| match challenge.verify(secret, told, local) {
                HandshakeResult::Accepted(..) => "accepted",
                HandshakeResult::Elsewhere(_) => "elsewhere",
                HandshakeResult::Refused => "refused",
            };
        assert_eq!(verdict(&challenge, &good, &told), "accepted");
        assert_eq!(verdict(&challenge, &bad, &told), "refused");
        assert_eq!(verdict(&Challenge::new(Purpose::Store).unwrap(), &good, &told), "refused");
        let link = Challenge { purpose: Purpose::Link(3), nonce: challenge.nonce };
        assert_eq!(verdict(&link, &good, &told), "refused");
        // A relayed connection: dialled elsewhere, or meant for another rank.
        for dialled in ["10.0.0.2:77", "10.0.0.1:78"] {
            assert_eq!(
                verdict(&challenge, &good, &answer(&good, Purpose::Store, &challenge.nonce, dialled)),
                "elsewhere"
            );
        }
        let meant = |rank| answer(&good, Purpose::Link(rank), &challenge.nonce, "[::ffff:10.0.0.1]:77");
        assert_eq!(verdict(&link, &good, &meant(3)), "accepted");
        assert_eq!(verdict(&link, &good, &meant(2)), "elsewhere");
        // The target in the answer is covered by the proof.
        told[40] ^= 1;
        assert_eq!(verdict(&challenge, &good, &told), "refused");
        assert!(equal(b"", b"") && !equal(b"a", b"ab"));
    }

    #[test]
    fn frames_cannot_be_changed_repeated_or_swapped() {
        let key = [3; 32];
        let (mut out, mut back) = (Seal::new(key), Seal::new(key));
        let frames = [b"one".to_vec(), b"two".to_vec()].map(|frame| out.seal(frame));
        let split = |frame: &[u8]| frame.split_at(frame.len() - TAG).0.len();
        let check = |seal: &mut Seal, frame: &[u8]| seal.verify(&frame[..split(frame)], &frame[split(frame)..]);
        assert!(!check(&mut back, &frames[1]), "the second first");
        assert!(check(&mut back, &frames[0]));
        assert!(!check(&mut back, &frames[0]), "the first again");
        let mut changed = frames[1].clone();
        changed[0] ^= 1;
        assert!(!check(&mut back, &changed));
        assert!(check(&mut back, &frames[1]));
    }

    #[test]
    fn a_trickle_of_bytes_does_not_extend_a_handshake() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let slow = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            while stream.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let (stream, _) = listener.accept().unwrap();
        let since = Instant::now();
        assert!(accept(&stream, &Secret::new("a"), Purpose::Store, Duration::from_millis(300)).is_err());
        assert!(since.elapsed() < Duration::from_millis(1500), "{:?}", since.elapsed());
        drop(stream);
        slow.join().unwrap();
    }
}
