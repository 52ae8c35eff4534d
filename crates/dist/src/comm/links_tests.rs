use super::super::abort::Abort;
use super::*;
use crate::launch::Secret;
use std::net::Ipv4Addr;

/// Two ends of a link, each with a thread's work.
fn pair(secret: &Secret) -> (Links, Links) {
    let ends = [0, 1].map(|rank| Arc::new(Endpoint::listen(secret.clone(), rank, true).unwrap()));
    let peers: Vec<Peer> = (0..2)
        .map(|rank| Peer { rank, addresses: vec![Ipv4Addr::LOCALHOST.into()], port: ends[rank].port() })
        .collect();
    let [a, b] = ends;
    (Links::new(9, 0, peers.clone(), Some(a)), Links::new(9, 1, peers, Some(b)))
}

fn swap(links: &mut Links, out: &mut [u8], into: &mut [u8], signature: &str) -> Result<()> {
    let abort = Abort::default();
    let limit = Limit::new(&abort, Duration::from_secs(30));
    let peer = 1 - links.rank;
    let mut both = [
        Transfer::send(peer, Channel::COLLECTIVE, Span::of(out)),
        Transfer::receive(peer, Channel::COLLECTIVE, Span::of(into)),
    ];
    // SAFETY: two slices that live through the call.
    unsafe { links.run(&mut both, &Signature::new(signature), &limit) }
}

#[test]
fn garbage_and_strangers_do_not_disturb() {
    let secret = Secret::new("right");
    let (mut a, mut b) = pair(&secret);
    let port = a.endpoint.as_ref().unwrap().port();
    let mut state = 7u64;
    for round in 0..40usize {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let bytes: Vec<u8> = (0..round * 5)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as u8
            })
            .collect();
        let _ = stream.write_all(&bytes);
    }
    let wrong = crate::store::dial((Ipv4Addr::LOCALHOST, port).into(), &Secret::new("wrong"), Purpose::Link(0));
    assert_eq!(wrong.err().unwrap().kind(), ErrorKind::PermissionDenied);
    // A connection meant for another rank of the job: something has passed it on.
    let passed_on = crate::store::dial((Ipv4Addr::LOCALHOST, port).into(), &secret, Purpose::Link(1));
    assert_eq!(passed_on.err().unwrap().kind(), ErrorKind::AddrNotAvailable);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut into = vec![0; 3 << 20];
            swap(&mut b, &mut vec![2; 3 << 20], &mut into, "x").unwrap();
            assert!(into.iter().all(|&byte| byte == 1));
        });
        let mut into = vec![0; 3 << 20];
        swap(&mut a, &mut vec![1; 3 << 20], &mut into, "x").unwrap();
        assert!(into.iter().all(|&byte| byte == 2));
    });
}

/// A connection of rank 1 to rank 0's endpoint, in group 9.
fn hello(port: u16, secret: &Secret) -> Dialled {
    let mut dialled = crate::store::dial((Ipv4Addr::LOCALHOST, port).into(), secret, Purpose::Link(0)).unwrap();
    let hello = dialled.out.seal([&9u64.to_le_bytes()[..], &1u32.to_le_bytes()].concat());
    dialled.stream.write_all(&hello).unwrap();
    dialled
}

#[test]
fn malformed_messages_are_errors() {
    let secret = Secret::new("right");
    let (mut a, b) = pair(&secret);
    // A rank that proves the secret and then sends garbage.
    let port = a.endpoint.as_ref().unwrap().port();
    let mut stream = hello(port, &secret).stream;
    stream.write_all(&[0xff; HEADER]).unwrap();
    let message = swap(&mut a, &mut [1], &mut [0], "x").unwrap_err().to_string();
    assert!(message.contains("rank 1's connection") && message.contains("seal"), "{message}");
    drop(b);
}

/// A rank that proves the secret and sends corrupted messages: bytes changed, cut off, repeated, out of order, wrong
/// lengths. Each ends in a value or an error, soon, and takes no more memory than was sent.
#[test]
fn mutated_messages_are_values_or_errors() {
    let secret = Secret::new("right");
    let mut state = 5u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let message = |seal: &mut Seal, channel: Channel, signature: &Signature, body: &[u8]| {
        let head = [channel.0.to_le_bytes(), (body.len() as u64).to_le_bytes()].concat();
        [seal.seal([&head[..], &signature.to_bytes()].concat()), body.to_vec()].concat()
    };
    let mut sound = Signature::new("x");
    sound.number = 1;
    let (mut values, mut errors) = (0, 0);
    for round in 0..240 {
        let ends = Arc::new(Endpoint::listen(secret.clone(), 0, true).unwrap());
        let port = ends.port();
        let peer = |rank| Peer { rank, addresses: vec![Ipv4Addr::LOCALHOST.into()], port };
        let mut links = Links::new(9, 0, vec![peer(0), peer(1)], Some(ends));
        // One or more messages; the receiver expects the first that belongs to the collective: 33 bytes.
        let mut bytes = Vec::new();
        let Dialled { mut stream, mut out, .. } = hello(port, &secret);
        for _ in 0..1 + next(3) {
            let channel = if next(3) == 0 { Channel::tagged(next(3) as u32) } else { Channel::COLLECTIVE };
            bytes.extend(message(&mut out, channel, &sound, &vec![7; if next(4) == 0 { next(3000) } else { 33 }]));
        }
        bytes.extend(message(&mut out, Channel::COLLECTIVE, &sound, &[7; 33]));
        match round % 5 {
            0 => {}
            1 => (0..1 + next(4)).for_each(|_| {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }),
            2 => bytes.truncate(next(bytes.len())),
            3 => bytes[8..16].copy_from_slice(&(u64::MAX >> next(64)).to_le_bytes()),
            _ => bytes = (0..next(1000)).map(|_| next(256) as u8).collect(),
        }
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let abort = Abort::default();
        let limit = Limit::new(&abort, Duration::from_secs(60));
        let mut into = [0; 33];
        let mut transfers = [Transfer::receive(1, Channel::COLLECTIVE, Span::of(&mut into))];
        // SAFETY: an array that lives through the call.
        match unsafe { links.run(&mut transfers, &sound, &limit) } {
            Ok(()) => values += 1,
            Err(e) => {
                assert!(!e.to_string().contains("timed out"), "{e}");
                errors += 1;
            }
        }
    }
    assert!(values > 20 && errors > 60, "{values} values, {errors} errors");
}

#[test]
fn other_signatures_and_lengths_are_named() {
    for (theirs, len) in [("y", 1), ("x", 2)] {
        let (mut a, mut b) = pair(&Secret::new("s"));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = swap(&mut b, &mut vec![0; len], &mut vec![0; len], theirs);
            });
            let message = swap(&mut a, &mut [1], &mut [0], "x").unwrap_err().to_string();
            assert!(message.contains("rank 1 called"), "{message}");
        });
    }
}

/// Connections without the secret that trickle bytes: a rank's connection is not delayed by them.
#[test]
fn slow_strangers_do_not_block_ranks() {
    let secret = Secret::new("right");
    let (mut a, mut b) = pair(&secret);
    let port = a.endpoint.as_ref().unwrap().port();
    let strangers: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
    let since = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&mut b, &mut [2], &mut [0], "x").unwrap());
        let mut into = [0];
        swap(&mut a, &mut [1], &mut into, "x").unwrap();
        assert_eq!(into, [2]);
    });
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    drop(strangers);
}

/// Three ranks in a ring that all send 64 MB before they receive, each on its own thread.
#[test]
fn a_ring_of_large_sends_does_not_deadlock() {
    let secret = Secret::new("ring");
    let ends: Vec<_> = (0..3).map(|rank| Arc::new(Endpoint::listen(secret.clone(), rank, true).unwrap())).collect();
    let peer = |rank: usize| Peer { rank, addresses: vec![Ipv4Addr::LOCALHOST.into()], port: ends[rank].port() };
    let peers: Vec<Peer> = (0..3).map(peer).collect();
    std::thread::scope(|scope| {
        for (rank, end) in ends.iter().enumerate() {
            let mut links = Links::new(9, rank, peers.clone(), Some(end.clone()));
            scope.spawn(move || {
                let abort = Abort::default();
                let limit = Limit::new(&abort, Duration::from_secs(30));
                let (mut out, mut into) = (vec![rank as u8; 64 << 20], vec![9; 64 << 20]);
                let mut send = [Transfer::send((rank + 1) % 3, Channel::tagged(0), Span::of(&mut out))];
                let mut receive = [Transfer::receive((rank + 2) % 3, Channel::tagged(0), Span::of(&mut into))];
                // SAFETY: vectors that live through the calls.
                unsafe {
                    links.run(&mut send, &Signature::new("isend"), &limit).unwrap();
                    links.run(&mut receive, &Signature::new("irecv"), &limit).unwrap();
                }
                assert!(into.iter().all(|&byte| byte as usize == (rank + 2) % 3));
            });
        }
    });
}

/// Two messages to one rank at once: their parts do not mix.
#[test]
fn two_large_sends_to_one_rank_keep_their_order() {
    let (mut a, mut b) = pair(&Secret::new("two"));
    let run = |links: &mut Links, transfers: &mut [Transfer]| {
        let abort = Abort::default();
        let limit = Limit::new(&abort, Duration::from_secs(30));
        // SAFETY: vectors of the callers, which live through the call.
        unsafe { links.run(transfers, &Signature::new("x"), &limit).unwrap() };
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut x, mut y) = (vec![1u8; 20 << 20], vec![2u8; 20 << 20]);
            let send = |span| Transfer::send(0, Channel::tagged(3), span);
            run(&mut b, &mut [send(Span::of(&mut x)), send(Span::of(&mut y))]);
        });
        let (mut x, mut y) = (vec![0u8; 20 << 20], vec![0u8; 20 << 20]);
        let receive = |span| Transfer::receive(1, Channel::tagged(3), span);
        run(&mut a, &mut [receive(Span::of(&mut x)), receive(Span::of(&mut y))]);
        assert!(x.iter().all(|&byte| byte == 1) && y.iter().all(|&byte| byte == 2));
    });
}

#[test]
fn a_rank_that_cannot_be_reached_is_named() {
    let secret = Secret::new("away");
    let end = Arc::new(Endpoint::listen(secret, 0, true).unwrap());
    let peer = |rank, port| Peer { rank, addresses: vec![Ipv4Addr::LOCALHOST.into()], port };
    // Nothing listens on port 1.
    let mut links = Links::new(9, 0, vec![peer(0, end.port()), peer(1, 1)], Some(end));
    let since = Instant::now();
    let message = swap(&mut links, &mut [1], &mut [0], "x").unwrap_err().to_string();
    assert!(message.contains("rank 0 cannot reach rank 1") && message.contains("127.0.0.1 port 1"), "{message}");
    assert!(since.elapsed() < Duration::from_secs(20));
}
