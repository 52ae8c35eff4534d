use super::super::abort::Abort;
use super::*;

/// Two ends of a link, each with a thread's work.
fn pair(secret: &Secret) -> (Links, Links) {
    let ends = [0, 1].map(|_| Arc::new(Endpoint::listen(secret.clone(), true).unwrap()));
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
    let wrong = crate::store::dial((Ipv4Addr::LOCALHOST, port).into(), &Secret::new("wrong"), Purpose::Link);
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::PermissionDenied);
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

#[test]
fn malformed_messages_are_errors() {
    let secret = Secret::new("right");
    let (mut a, b) = pair(&secret);
    // A rank that proves the secret and then sends garbage.
    let port = a.endpoint.as_ref().unwrap().port();
    let mut stream = crate::store::dial((Ipv4Addr::LOCALHOST, port).into(), &secret, Purpose::Link).unwrap();
    stream.write_all(&[&9u64.to_le_bytes()[..], &1u32.to_le_bytes(), &[0xff; HEADER]].concat()).unwrap();
    let message = swap(&mut a, &mut [1], &mut [0], "x").unwrap_err().to_string();
    assert!(message.contains("rank 1 sent a malformed message"), "{message}");
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
    let message = |channel: Channel, signature: &Signature, body: &[u8]| {
        let head = [channel.0.to_le_bytes(), (body.len() as u64).to_le_bytes()].concat();
        [&head[..], &signature.to_bytes(), body].concat()
    };
    let mut sound = Signature::new("x");
    sound.number = 1;
    let (mut values, mut errors) = (0, 0);
    for round in 0..240 {
        let ends = Arc::new(Endpoint::listen(secret.clone(), true).unwrap());
        let port = ends.port();
        let peer = |rank| Peer { rank, addresses: vec![Ipv4Addr::LOCALHOST.into()], port };
        let mut links = Links::new(9, 0, vec![peer(0), peer(1)], Some(ends));
        // One or more messages; the receiver expects the first that belongs to the collective: 33 bytes.
        let mut bytes = Vec::new();
        for _ in 0..1 + next(3) {
            let channel = if next(3) == 0 { Channel::tagged(next(3) as u32) } else { Channel::COLLECTIVE };
            bytes.extend(message(channel, &sound, &vec![7; if next(4) == 0 { next(3000) } else { 33 }]));
        }
        bytes.extend(message(Channel::COLLECTIVE, &sound, &[7; 33]));
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
        let mut stream = crate::store::dial((Ipv4Addr::LOCALHOST, port).into(), &secret, Purpose::Link).unwrap();
        stream.write_all(&[&9u64.to_le_bytes()[..], &1u32.to_le_bytes(), &bytes].concat()).unwrap();
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
