use super::*;
use crate::launch::Secret;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc;

const SHORT: Duration = Duration::from_millis(50);

/// Runs a test in a thread and fails it after a minute.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => thread.join().unwrap(),
    }
}

/// PyTorch's operations, by a store and another view of the same keys.
fn operations(store: &dyn Store, other: Arc<dyn Store>, own_keys: usize) {
    store.set("a", b"1").unwrap();
    assert_eq!(other.get("a").unwrap(), b"1");
    assert_eq!((other.add("n", 5).unwrap(), store.add("n", -7).unwrap()), (5, -2));
    assert_eq!(store.get("n").unwrap(), b"-2");
    store.set("text", b"x").unwrap();
    assert!(store.add("text", 1).unwrap_err().to_string().contains("not a number"));
    assert_eq!(store.compare_set("c", b"no", b"new").unwrap(), b"no");
    assert!(!store.check(&["c"]).unwrap());
    assert_eq!(store.compare_set("c", b"", b"new").unwrap(), b"new");
    assert_eq!(store.compare_set("c", b"other", b"newer").unwrap(), b"new");
    assert_eq!(other.compare_set("c", b"new", b"newer").unwrap(), b"newer");
    store.append("list", b"ab").unwrap();
    other.append("list", b"c").unwrap();
    assert_eq!(store.get("list").unwrap(), b"abc");
    store.multi_set(&[("x", b"1"), ("y", b"")]).unwrap();
    assert_eq!(other.multi_get(&["y", "x"]).unwrap(), [b"".to_vec(), b"1".to_vec()]);
    assert!(store.check(&["x", "y"]).unwrap() && !store.check(&["x", "z"]).unwrap());
    assert!(store.delete_key("x").unwrap() && !other.delete_key("x").unwrap());
    assert_eq!(store.num_keys().unwrap(), 6 + own_keys);
    assert_eq!(other.list_keys().unwrap(), ["a", "c", "list", "n", "text", "y"]);
    store.queue_push("q", b"1").unwrap();
    other.queue_push("q", b"2").unwrap();
    assert!(store.check(&["q"]).unwrap() && store.queue_len("q").unwrap() == 2);
    assert_eq!(
        (other.queue_pop("q", SHORT).unwrap(), store.queue_pop("q", SHORT).unwrap()),
        (b"1".to_vec(), b"2".to_vec())
    );
    assert!(store.queue_pop("q", SHORT).unwrap_err().to_string().contains("timed out"));
    assert!(!store.check(&["q"]).unwrap() && store.queue_len("q").unwrap() == 0);
    let popper = other.clone().try_clone().unwrap();
    let popped = std::thread::spawn(move || popper.queue_pop("q", Duration::from_secs(20)).unwrap());
    std::thread::sleep(SHORT);
    store.queue_push("q", b"3").unwrap();
    assert_eq!(popped.join().unwrap(), b"3");
    let message = store.wait_for(&["never"], SHORT).unwrap_err().to_string();
    assert!(message.contains("never") && message.contains("timed out"), "{message}");
    let waiter = std::thread::spawn(move || other.multi_get(&["late", "later"]).unwrap());
    std::thread::sleep(SHORT);
    store.set("late", b"1").unwrap();
    store.set("later", b"2").unwrap();
    assert_eq!(waiter.join().unwrap(), [b"1".to_vec(), b"2".to_vec()]);
    assert_eq!(store.timeout(), DEFAULT_TIMEOUT);
}

#[test]
fn hash_store() {
    watched(|| {
        let store = Arc::new(HashStore::new());
        operations(&*store, store.clone(), 0);
        let part = PrefixStore::new("p", store.clone());
        part.multi_set(&[("a", b"2"), ("b", b"3")]).unwrap();
        assert_eq!((store.get("a").unwrap(), store.get("p/a").unwrap()), (b"1".to_vec(), b"2".to_vec()));
        assert_eq!(part.multi_get(&["b", "a"]).unwrap(), [b"3".to_vec(), b"2".to_vec()]);
    });
}

#[test]
fn tcp_store() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let other = TcpStore::connect("localhost", &[store.port()], secret).unwrap();
        operations(&store, Arc::new(other), 0);
        let large = vec![7u8; 5 << 20];
        store.set("large", &large).unwrap();
        assert!(store.get("large").unwrap() == large);
    });
}

#[test]
fn file_store() {
    watched(|| {
        let path = std::env::temp_dir().join(format!("rushlight-filestore-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let store = FileStore::open(&path, Some(2)).unwrap();
        let other = Arc::new(FileStore::open(&path, Some(2)).unwrap());
        // As in PyTorch, the count of its users is one of its keys.
        operations(&store, other, 1);
        // A writer that died in the middle of a record.
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&[200, 0, 0, 0, 1]).unwrap();
        store.set("after", b"1").unwrap();
        let late = FileStore::open(&path, None).unwrap();
        assert_eq!(late.get("after").unwrap(), b"1");
        drop(late);
        drop(store);
        assert!(!path.exists());
    });
}

/// Who reads the file can join the job, and who writes to it is obeyed.
#[test]
fn a_file_store_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("rushlight-filestore-private-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let store = FileStore::open(&path, None).unwrap();
    assert_eq!(mode(), 0o600);
    drop(store);
    // A file that a program has made for it.
    std::fs::write(&path, b"").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let store = FileStore::open(&path, None).unwrap();
    assert_eq!(mode(), 0o600);
    drop(store);
    let _ = std::fs::remove_file(&path);
    // A link that somebody has planted in a folder that all may write to.
    let target = path.with_extension("target");
    std::fs::write(&target, b"").unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(FileStore::open(&path, None).err().unwrap().to_string().contains("cannot be opened"));
    assert_eq!(std::fs::read(&target).unwrap(), b"");
    for file in [path, target] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_file_store_goes_with_its_last_user() {
    watched(|| {
        let path = std::env::temp_dir().join(format!("rushlight-filestore-users-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        // One process with two stores and a clone, as a process group and a program of its own have.
        let (first, second) = (FileStore::open(&path, Some(1)).unwrap(), FileStore::open(&path, Some(1)).unwrap());
        let clone = Arc::new(second).try_clone().unwrap();
        drop(first);
        assert!(path.exists(), "the clone still uses it");
        clone.set("key", b"1").unwrap();
        drop(clone);
        assert!(!path.exists());
        // Two processes: the first that leaves takes nothing with it.
        let (first, second) = (FileStore::open(&path, Some(2)).unwrap(), FileStore::open(&path, Some(2)).unwrap());
        drop(first);
        assert!(path.exists());
        // The file of another run in the same place stays.
        std::fs::remove_file(&path).unwrap();
        let other = FileStore::open(&path, None).unwrap();
        drop(second);
        assert!(path.exists());
        drop(other);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn leases_tell_of_deaths() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret).unwrap();
        let (rude, polite) = (store.another().unwrap(), store.another().unwrap());
        rude.lease("gone", b"rank 1").unwrap();
        polite.lease("polite", b"rank 2").unwrap();
        polite.release().unwrap();
        drop(polite);
        drop(rude);
        assert_eq!(store.get("gone").unwrap(), b"rank 1");
        assert!(!store.check(&["polite"]).unwrap());
    });
}

#[test]
fn strangers_get_nothing() {
    watched(|| {
        let store = TcpStore::host(&[0], true, Secret::new("right")).unwrap();
        store.set("key", b"treasure").unwrap();
        let wrong =
            TcpStore::connect_within("127.0.0.1", &[store.port()], Secret::new("wrong"), Duration::from_secs(20));
        assert!(wrong.err().unwrap().to_string().contains("refused"));
        // Among several ports another job's store is skipped.
        let other = TcpStore::host(&[0], true, Secret::new("other")).unwrap();
        let found = TcpStore::connect("127.0.0.1", &[other.port(), store.port()], Secret::new("right")).unwrap();
        assert_eq!(found.get("key").unwrap(), b"treasure");
        // A request without any proof.
        let mut raw = TcpStream::connect(("127.0.0.1", store.port())).unwrap();
        raw.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut request = frame::request(Op::Get, 0, &[b"key"]).unwrap();
        request.resize(200, 0);
        raw.write_all(&request).unwrap();
        let mut answer = Vec::new();
        let _ = raw.read_to_end(&mut answer);
        assert!(answer.len() <= auth::GREETING + auth::PROOF && !answer.windows(8).any(|w| w == b"treasure"));
        assert_eq!(store.server().unwrap().refused(), 2);
    });
}

#[test]
fn garbage_is_survived() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let mut state = 42u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        for round in 0..200usize {
            let bytes: Vec<u8> = (0..1 + round * 7 % 300).map(|_| next()).collect();
            // Every other round proves the secret first, so that the garbage is read as requests.
            let stream = match round % 2 {
                0 => TcpStream::connect(("127.0.0.1", store.port())).unwrap(),
                _ => client::dial(([127, 0, 0, 1], store.port()).into(), &secret, auth::Purpose::Store).unwrap().stream,
            };
            let _ = (&stream).write_all(&bytes);
            if round % 5 == 0 {
                // Half closed: the server must not wait for more.
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
        }
        store.set("alive", b"yes").unwrap();
        assert_eq!(store.another().unwrap().get("alive").unwrap(), b"yes");
    });
}

/// Corrupted requests: bytes changed, cut off, repeated, wrong lengths. The server answers or closes the connection; it
/// neither stops nor allocates what a length claims.
#[test]
fn mutated_requests_are_survived() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let mut state = 9u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let sound: Vec<Vec<u8>> = (0..=20u8)
            .filter_map(Op::from_byte)
            .flat_map(|op| {
                let arguments: [&[&[u8]]; 3] = [&[], &[b"key"], &[b"key", b"7", b"value"]];
                arguments.map(|list| frame::request(op, 1, list).unwrap())
            })
            .collect();
        assert!(sound.len() > 15);
        for round in 0..1500 {
            let mut bytes = sound[next(sound.len())].clone();
            match round % 4 {
                0 => (0..1 + next(4)).for_each(|_| {
                    let at = next(bytes.len());
                    bytes[at] = next(256) as u8;
                }),
                1 => bytes.truncate(next(bytes.len())),
                2 => bytes = bytes.repeat(2 + next(3)),
                _ => {
                    // A length field, inner or outer, that claims up to 4 GiB.
                    let at = if next(2) == 0 { 0 } else { next(bytes.len() - 3) };
                    bytes[at..at + 4].copy_from_slice(&(u32::MAX >> next(32)).to_le_bytes());
                }
            }
            let dialled = client::dial(([127, 0, 0, 1], store.port()).into(), &secret, auth::Purpose::Store);
            let client::Dialled { mut stream, mut out, .. } = dialled.unwrap();
            // Every other one is sealed, so that the server reads what it says.
            let bytes = if round % 8 < 4 { out.seal(bytes) } else { bytes };
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        store.set("alive", b"yes").unwrap();
        assert_eq!(store.another().unwrap().get("alive").unwrap(), b"yes");
    });
}

#[test]
fn many_connections_and_slow_starters() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let port = store.port();
        // Two thousand, or as many as this process may have files open: each has two ends here.
        crate::net::raise_descriptor_limit();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure is valid for the call.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        let many = 2000.min((limit.rlim_cur as usize).saturating_sub(1000) / 2).max(100);
        // Silent strangers block nobody.
        let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let clients: Vec<TcpStore> =
            (0..many).map(|_| TcpStore::connect("127.0.0.1", &[port], secret.clone()).unwrap()).collect();
        for (i, client) in clients.iter().enumerate() {
            assert_eq!(client.add("arrived", 1).unwrap(), i as i64 + 1);
        }
        drop(silent);
        // A client that starts before its server.
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let theirs = secret.clone();
        let early =
            std::thread::spawn(move || TcpStore::connect("127.0.0.1", &[port], theirs).unwrap().get("k").unwrap());
        std::thread::sleep(SHORT);
        let late = TcpStore::host(&[port], true, secret).unwrap();
        late.set("k", b"v").unwrap();
        assert_eq!(early.join().unwrap(), b"v");
    });
}

#[test]
fn a_server_that_ends_is_an_error() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let other = TcpStore::connect("127.0.0.1", &[store.port()], secret).unwrap();
        let waiter = std::thread::spawn(move || other.get("never").unwrap_err().to_string());
        std::thread::sleep(SHORT);
        drop(store);
        assert!(waiter.join().unwrap().contains("lost"));
    });
}

/// Relays one connection to a server and changes one byte of the client's second message on the way.
fn meddler(port: u16) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(std::net::Shutdown::Both);
        });
        let (mut client, mut server) = (client, server);
        let mut buffer = [0; 4096];
        for message in 0.. {
            let n = client.read(&mut buffer).unwrap_or(0);
            if n == 0 {
                return;
            }
            if message == 1 {
                // The answer of the handshake passes; this is in the request's key.
                buffer[20] ^= 1;
            }
            server.write_all(&buffer[..n]).unwrap();
        }
    });
    own
}

#[test]
fn a_relay_is_noticed_and_cannot_change_requests() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let address = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        // The relay listens on another port than the store.
        let refused = client::dial(address(meddler(store.port())), &secret, auth::Purpose::Store);
        assert_eq!(refused.err().unwrap().kind(), std::io::ErrorKind::AddrNotAvailable);
        // One at the store's own address, as behind address translation, changes a byte: the server drops the client.
        let stream = TcpStream::connect(("127.0.0.1", meddler(store.port()))).unwrap();
        let seals = auth::connect(&stream, &secret, auth::Purpose::Store, address(store.port()), SHORT * 40).unwrap();
        let (mut stream, mut out) = (stream, seals.0);
        stream.write_all(&out.seal(frame::request(Op::Set, 0, &[b"key".as_slice(), b"value"]).unwrap())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(stream.read(&mut [0; 64]).is_ok_and(|n| n == 0), "the connection is closed");
        assert_eq!(store.num_keys().unwrap(), 0);
    });
}

#[test]
fn strangers_of_one_address_make_room() {
    watched(|| {
        let secret = Secret::random().unwrap();
        let store = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let silent: Vec<TcpStream> =
            (0..700).map(|_| TcpStream::connect(("127.0.0.1", store.port())).unwrap()).collect();
        let since = std::time::Instant::now();
        let client = TcpStore::connect("127.0.0.1", &[store.port()], secret).unwrap();
        assert_eq!(client.add("here", 1).unwrap(), 1);
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        assert!(store.server().unwrap().refused() >= 700 - 512);
        drop(silent);
    });
}

#[test]
fn a_client_needs_a_port() {
    let since = std::time::Instant::now();
    let message = TcpStore::connect("127.0.0.1", &[0], Secret::new("x")).err().unwrap().to_string();
    assert!(message.contains("port 0"), "{message}");
    assert!(since.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_second_rank_0_is_named() {
    watched(|| {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let meeting = crate::launch::Rendezvous {
            host: "127.0.0.1".into(),
            ports: vec![port],
            job: "j".into(),
            reason: String::new(),
        };
        let secret = Secret::random().unwrap();
        let first = TcpStore::meet(&meeting, 0, secret.clone(), Duration::from_secs(20)).unwrap();
        first.set("rank/0", b"node\n1\n127.0.0.1\nprocess 77 on here").unwrap();
        let message = TcpStore::meet(&meeting, 0, secret, SHORT).err().unwrap().to_string();
        assert!(message.contains("process 77 on here") && message.contains("rank 0 too"), "{message}");
    });
}
