//! How the ranks of a job meet: the store they share, their addresses, and what does not fit together.

use crate::comm::{Call, Endpoint, Limit, Peer, Signature, Span, Transport};
use crate::job::{Job, Network};
use crate::launch::{self, Environment, Launch, Rendezvous, Secret, random_bytes};
use crate::mpi::MpiTransport;
use crate::net;
use crate::store::{FileStore, Store, TcpStore};
use crate::world::Init;
use rushlight_core::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first rank's world size, rank and process.
const WORLD: &str = "world";
/// Why the ranks cannot form a world. Every rank that waits for the others reports it.
const REFUSAL: &str = "refusal";
/// How long rank 0, which holds the store, stays for the others to read a refusal.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// Missing ranks that are named.
const NAMED: usize = 16;

/// The store of a job, and the host by which its ranks reach it, if it has a name.
pub(crate) struct Met {
    store: TcpStore,
    host: Option<String>,
}

/// The store of the job.
pub(crate) fn meet(launch: &Launch, env: &Environment, init: &Init) -> Result<Met> {
    let timeout = init.timeout.min(crate::store::DEFAULT_TIMEOUT);
    let unnamed = |store| Met { store, host: None };
    if let Some(store) = &init.store {
        return meet_in(&**store, "the store", launch, env, timeout).map(unnamed);
    }
    if let Some(path) = init.method.strip_prefix("file://") {
        let file = FileStore::open(path, Some(launch.world_size))?;
        file.set_timeout(timeout);
        return meet_in(&file, &format!("the file {path}"), launch, env, timeout).map(unnamed);
    }
    let meeting = match init.method.strip_prefix("tcp://") {
        Some(address) => {
            let (host, port) =
                address.trim_end_matches('/').rsplit_once(':').ok_or_else(|| bad_method(&init.method))?;
            let port = port.parse::<u16>().ok().filter(|&p| p != 0).ok_or_else(|| bad_method(&init.method))?;
            Rendezvous {
                host: host.into(),
                ports: vec![port],
                job: address.into(),
                reason: "given by the program".into(),
            }
        }
        None if is_usual(&init.method) => Rendezvous::new(launch, env)?,
        None => return Err(bad_method(&init.method)),
    };
    let (secret, _) = launch::job_secret(launch, &meeting)?;
    let store = TcpStore::meet(&meeting, launch.rank, secret, timeout)?;
    Ok(Met { store, host: Some(meeting.host) })
}

/// Whether the launcher determines the rendezvous.
pub(crate) fn is_usual(method: &str) -> bool {
    method == "env://" || method.is_empty()
}

fn bad_method(method: &str) -> Error {
    Error::value(format!("init_process_group: the method {method:?} should be env://, tcp://host:port or file:///path"))
}

/// Rank 0 sends the address of the job's store over MPI: nothing is guessed or read from variables.
pub(crate) fn meet_by_mpi(
    mpi: &mut MpiTransport,
    launch: &Launch,
    env: &Environment,
    init: &Init,
    limit: Limit,
) -> Result<Met> {
    let timeout = init.timeout.min(crate::store::DEFAULT_TIMEOUT);
    let own = (launch.rank == 0).then(|| host_store(env, timeout)).transpose();
    // Without a store rank 0 sends an empty message: the others must not wait for it.
    let text = own.as_ref().ok().and_then(Option::as_ref).map_or("", |(_, text)| text.as_str());
    let call = Call { signature: Signature::new("init_process_group"), limit };
    let mut length = (text.len() as u64).to_le_bytes();
    // SAFETY: arrays of this frame, of one size on all ranks. An error leaves the process with no use for MPI.
    unsafe { mpi.broadcast(Span::of(&mut length), 0, &call)? };
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(u64::from_le_bytes(length) as usize, 0);
    // SAFETY: as above.
    unsafe { mpi.broadcast(Span::of(&mut bytes), 0, &call)? };
    let store = match own? {
        Some((store, _)) => store,
        None => join_store(&String::from_utf8_lossy(&bytes), "the message of rank 0", env, timeout)?,
    };
    Ok(Met { store, host: None })
}

/// Rank 0 puts address and secret of the job's store in another store: a file that only this user can read, or one that
/// the program passed.
fn meet_in(other: &dyn Store, name: &str, launch: &Launch, env: &Environment, timeout: Duration) -> Result<TcpStore> {
    if launch.rank == 0 {
        let (store, text) = host_store(env, timeout)?;
        let first = other.compare_set("store", b"", text.as_bytes())?;
        if first != text.as_bytes() {
            let first = String::from_utf8_lossy(&first).into_owned();
            if join_store(&first, name, env, Duration::from_secs(2)).is_ok() {
                return Err(Error::value(format!(
                    "init_process_group: another process that meets in {name} is rank 0 too; every process needs its own rank, \
                     and every job its own meeting place"
                )));
            }
            // Left by a job that has ended.
            other.set("store", text.as_bytes())?;
        }
        return Ok(store);
    }
    join_store(&String::from_utf8_lossy(&other.get("store")?), name, env, timeout)
}

/// A store in this process with a new secret, and the text that others need to join it.
fn host_store(env: &Environment, timeout: Duration) -> Result<(TcpStore, String)> {
    let secret = random_bytes()?.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let store = TcpStore::host(&[0], false, Secret::new(&secret))?;
    let mut hosts: Vec<String> = own_addresses(env, None, None)?.iter().map(IpAddr::to_string).collect();
    hosts.push("127.0.0.1".into());
    let text = format!("{secret} {} {} {}", store.port(), env.hostname(), hosts.join(","));
    store.set_timeout(timeout);
    Ok((store, text))
}

/// Joins a store that [`host_store`] made elsewhere. `name` is the source of its description.
fn join_store(text: &str, name: &str, env: &Environment, timeout: Duration) -> Result<TcpStore> {
    let [secret, port, host, addresses] = text.split(' ').collect::<Vec<_>>()[..] else {
        return Err(Error::io(format!(
            "init_process_group: {name} was used by another program; use one of this job's own"
        )));
    };
    let port = port.parse().map_err(|_| Error::io(format!("init_process_group: {name} is malformed")))?;
    let here = host == env.hostname();
    let mut last = Error::io("init_process_group: rank 0 gave no address");
    let mut addresses: Vec<&str> = addresses.split(',').collect();
    if here {
        addresses.reverse();
    }
    for address in addresses {
        match TcpStore::connect_within(address, &[port], Secret::new(secret), timeout.min(Duration::from_secs(10))) {
            Ok(store) => {
                store.set_timeout(timeout);
                return Ok(store);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Addresses of this machine that others may reach, the best first: the one that the user gave, then those of
/// [`launch::own_addresses`].
fn own_addresses(env: &Environment, host: Option<&str>, on_the_way: Option<IpAddr>) -> Result<Vec<IpAddr>> {
    let all = launch::interfaces();
    let mut found: Vec<IpAddr> = Vec::new();
    if let Some(text) = env.get(launch::LOCAL_ADDRESS_VARIABLE) {
        found.extend(launch::resolve(text, env, Duration::from_secs(10))?);
    }
    let known = on_the_way.filter(|ip| !ip.is_loopback());
    let route = known.or_else(|| launch::address_towards(host?, &all, env));
    for ip in launch::own_addresses(&all, env, route)? {
        if !found.contains(&ip) {
            found.push(ip);
        }
    }
    Ok(found)
}

/// An identifier equal for processes that can share memory: boot id, process namespace and user.
fn node_name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").map(|p| p.display().to_string()).unwrap_or_default();
    // SAFETY: `geteuid` has no preconditions.
    format!("{} {namespace} {}", boot.trim(), unsafe { libc::geteuid() })
}

/// Tells all ranks why they cannot form a world.
fn refuse(store: &TcpStore, rank: usize, error: Error) -> Error {
    let _ = store.compare_set(REFUSAL, b"", error.to_string().as_bytes());
    if rank == 0 {
        std::thread::sleep(REFUSAL_TIME);
    }
    error
}

/// The value of a key, or `None` at the deadline. Another rank's refusal is an error.
fn await_key(store: &TcpStore, key: &str, deadline: Instant, size: usize) -> Result<Option<Vec<u8>>> {
    // Longer in large jobs, to spare the store.
    let slice = Duration::from_millis(250 + size as u64 / 8);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match store.wait_for(&[key], left.min(slice)) {
            Ok(()) => return store.get(key).map(Some),
            Err(e) if e.kind() != ErrorKind::Timeout => return Err(e),
            Err(_) => {}
        }
        if store.check(&[REFUSAL])? {
            return Err(Error::value(String::from_utf8_lossy(&store.get(REFUSAL)?).into_owned()));
        }
        if left.is_zero() {
            return Ok(None);
        }
    }
}

/// The error of ranks that did not come.
fn missing(store: &TcpStore, size: usize, timeout: Duration) -> Error {
    let present = |rank: &usize| store.check(&[&format!("rank/{rank}")]).unwrap_or(true);
    let missing: Vec<String> =
        (0..size).filter(|rank| !present(rank)).take(NAMED + 1).map(|rank| rank.to_string()).collect();
    let more = if missing.len() > NAMED { " and others" } else { "" };
    Error::io(format!(
        "init_process_group: rank {}{more} of {size} did not join within {} s. Was every rank started, with the same MASTER_ADDR \
         and MASTER_PORT?",
        missing[..missing.len().min(NAMED)].join(", "),
        timeout.as_secs_f32()
    ))
}

/// Exchanges addresses with all ranks.
pub(crate) fn join(launch: &Launch, env: &Environment, init: &Init, met: Met) -> Result<Job> {
    let (rank, size) = (launch.rank, launch.world_size);
    let Met { store, host } = met;
    let store = Arc::new(store);
    let deadline = Instant::now() + store.timeout();
    let process = format!("process {} on {}", std::process::id(), env.hostname());
    let claim = format!("{size}\n{rank}\n{process}");
    let first = String::from_utf8_lossy(&store.compare_set(WORLD, b"", claim.as_bytes())?).into_owned();
    let first: Vec<&str> = first.split('\n').collect();
    if let [their_size, their_rank, their_process] = first[..]
        && their_size != size.to_string()
    {
        let error = Error::value(format!(
            "init_process_group: rank {rank} ({process}) was started in a world of {size} ranks, rank {their_rank} ({their_process}) \
             in one of {their_size}; WORLD_SIZE must be the same for all"
        ));
        return Err(refuse(&store, rank, error));
    }
    let secret = store.secret().clone();
    let node = init.node.clone().unwrap_or_else(node_name);
    // Who reaches rank 0 by loopback is on its machine.
    let loopback = host.as_deref().is_some_and(net::is_loopback);
    let addresses = match loopback {
        true => vec![Ipv4Addr::LOCALHOST.into()],
        false => own_addresses(env, host.as_deref(), store.local_ip())?,
    };
    let endpoint = Endpoint::listen(secret, rank, loopback)?;
    let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let card = format!("{node}\n{}\n{}\n{process}", endpoint.port(), list.join(","));
    let known = store.compare_set(&format!("rank/{rank}"), b"", card.as_bytes())?;
    if known != card.as_bytes() {
        let known = String::from_utf8_lossy(&known).into_owned();
        let other = known.split('\n').nth(3).unwrap_or("another process");
        return Err(Error::value(format!("init_process_group: {other} is rank {rank} of this job too")));
    }
    // One rank reads every card, the others its summary: n messages instead of n².
    if rank == 0 {
        let mut cards = Vec::with_capacity(size);
        for r in 0..size {
            match await_key(&store, &format!("rank/{r}"), deadline, size)? {
                Some(card) => cards.push(String::from_utf8_lossy(&card).into_owned()),
                None => return Err(refuse(&store, rank, missing(&store, size, store.timeout()))),
            }
        }
        store.set("cards", cards.join("\0").as_bytes())?;
    }
    // Rank 0 finds out first who is missing.
    let patience = deadline + 2 * REFUSAL_TIME;
    let cards = await_key(&store, "cards", patience, size)?.ok_or_else(|| missing(&store, size, store.timeout()))?;
    let cards = String::from_utf8_lossy(&cards).into_owned();
    let mut names: Vec<String> = Vec::new();
    let (mut peers, mut nodes) = (Vec::with_capacity(size), Vec::with_capacity(size));
    for (rank, card) in cards.split('\0').enumerate() {
        let lines: Vec<&str> = card.split('\n').collect();
        let (Some(name), Some(Ok(port)), Some(list)) = (lines.first(), lines.get(1).map(|p| p.parse()), lines.get(2))
        else {
            return Err(Error::io(format!("init_process_group: rank {rank} sent a malformed card")));
        };
        let mut addresses: Vec<IpAddr> = list.split(',').filter_map(|a| a.parse().ok()).collect();
        if *name == node || addresses.is_empty() {
            addresses.splice(0..0, [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        }
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push((*name).to_owned());
            names.len() - 1
        });
        nodes.push(at);
        peers.push(Peer { rank, addresses, port });
    }
    if peers.len() != size {
        return Err(Error::io(format!("init_process_group: rank 0 knows {} ranks, this one {size}", peers.len())));
    }
    let alarm = store.another()?;
    alarm.set_timeout(Duration::from_secs(10));
    alarm.set_patience(Duration::from_secs(10));
    let network = Network { store, alarm, endpoint: Arc::new(endpoint), peers, nodes };
    Ok(Job::new(rank, size, Some(network)))
}
