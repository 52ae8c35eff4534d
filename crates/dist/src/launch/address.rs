//! Rendezvous address: host, port and network interface.

use super::{Environment, Launch, Launcher};
use rushlight_core::{Error, Result};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

/// Address of a job's store.
///
/// Without MASTER_PORT there are several candidate ports, the same in every process of the job. Rank 0 listens on the
/// first free one; the others try them in turn and recognise their own store by its proof of the job's secret. So two
/// jobs on one host cannot connect to each other by mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Rank 0's host: an address or a name.
    pub host: String,
    /// Ports to try, in order.
    pub ports: Vec<u16>,
    /// An identifier of the job.
    pub job: String,
    /// How host and ports were found.
    pub reason: String,
}

impl Rendezvous {
    /// The rendezvous of a launch, from MASTER_ADDR and MASTER_PORT if they are set, else from the job's hosts and
    /// name.
    pub fn new(launch: &Launch, env: &Environment) -> Result<Self> {
        let (host, why_host) = match env.get("MASTER_ADDR") {
            Some(host) => (host.to_owned(), "MASTER_ADDR"),
            None if launch.is_one_node() => ("127.0.0.1".into(), "all ranks are on one node"),
            None => match launch.hosts.first() {
                Some(host) => (host.clone(), "first host of the job"),
                None => {
                    return Err(Error::value(format!(
                        "launch: {} does not say where rank 0 runs; set MASTER_ADDR and MASTER_PORT to its host and a free port",
                        launch.launcher
                    )));
                }
            },
        };
        // Under torchrun the agent's own store holds MASTER_PORT, with its own protocol.
        let agent = launch.launcher == Launcher::Torchrun && env.get("TORCHELASTIC_USE_AGENT_STORE") == Some("True");
        if let Some(port) = env.number("MASTER_PORT")?.filter(|_| !agent) {
            let port = u16::try_from(port)
                .ok()
                .filter(|&p| p != 0)
                .ok_or_else(|| Error::value(format!("launch: MASTER_PORT={port} should be between 1 and 65535")))?;
            let job = if launch.job.is_empty() { format!("{host} {port}") } else { launch.job.clone() };
            return Ok(Self {
                host,
                ports: vec![port],
                job,
                reason: format!("host by {why_host}, port by MASTER_PORT"),
            });
        }
        let job = match &launch.job {
            job if !job.is_empty() => job.clone(),
            _ if launch.is_one_node() && env.is_current() => {
                format!("{} of process {}", launch.launcher, launcher_process())
            }
            _ => {
                return Err(Error::value(format!(
                    "launch: {} gives no name that tells this job from others; set MASTER_PORT to a free port on {host}",
                    launch.launcher
                )));
            }
        };
        let ports = candidate_ports(&job);
        Ok(Self { host, ports, job, reason: format!("host by {why_host}, ports from the job's name") })
    }
}

/// Ports of a job: 16 between 15000 and 32767, which is below the usual ephemeral range, derived from the job's name.
pub fn candidate_ports(job: &str) -> Vec<u16> {
    let mut ports = Vec::with_capacity(16);
    for round in 0u8.. {
        for pair in Sha256::new().chain_update([round]).chain_update(job).finalize().chunks_exact(2) {
            let port = 15000 + u16::from_le_bytes([pair[0], pair[1]]) % (32768 - 15000);
            // PyTorch's default ports are often in use.
            if !ports.contains(&port) && port != 29400 && port != 29500 {
                ports.push(port);
            }
            if ports.len() == 16 {
                return ports;
            }
        }
    }
    ports
}

/// The range from which the kernel gives ports to outgoing connections; a listener there may find its port taken at
/// any time.
pub fn ephemeral_range(env: &Environment) -> std::ops::RangeInclusive<u16> {
    let text = env.read("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text.split_whitespace().filter_map(|n| n.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), Some(high)) => low..=high,
        _ => 32768..=60999,
    }
}

/// The process that started all ranks of this node: the nearest ancestor that is a launcher, else the parent. With its
/// start time, because process numbers are reused.
fn launcher_process() -> String {
    const NAMES: [&str; 10] = [
        "hydra_pmi_proxy",
        "mpiexec",
        "mpirun",
        "orted",
        "prted",
        "prterun",
        "mpispawn",
        "slurmstepd",
        "flux-shell",
        "palsd",
    ];
    // Fields of /proc/PID/stat after the name in parentheses: state, parent, …, start time as the 20th.
    let stat = |pid: u32| -> Option<(String, u32, String)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = tail.split(' ').collect();
        Some((head.split_once('(')?.1.to_owned(), fields.get(1)?.parse().ok()?, (*fields.get(19)?).to_owned()))
    };
    let parent = std::os::unix::process::parent_id();
    let mut pid = parent;
    while let Some((name, next, started)) = stat(pid).filter(|_| pid > 1) {
        if NAMES.iter().any(|launcher| name.starts_with(launcher)) {
            return format!("{pid} {started}");
        }
        pid = next;
    }
    format!("{parent} {}", stat(parent).map(|(_, _, started)| started).unwrap_or_default())
}

/// A network interface and one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name: `eth0`.
    pub name: String,
    /// An address; an interface with several addresses has several entries.
    pub address: IpAddr,
}

impl Interface {
    /// Whether other machines may reach the address: loopback and link-local addresses are excluded.
    pub fn is_usable(&self) -> bool {
        !self.address.is_loopback()
            && match self.address {
                IpAddr::V4(a) => !a.is_link_local(),
                IpAddr::V6(a) => (a.segments()[0] & 0xffc0) != 0xfe80,
            }
    }

    /// Whether its name is a fast network's (Slingshot, InfiniBand).
    pub fn is_fast(&self) -> bool {
        FAST.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

/// The variable with which `rushlight run --local-addr` passes the address by which other nodes reach this one.
pub const LOCAL_ADDRESS_VARIABLE: &str = "RUSHLIGHT_LOCAL_ADDR";

/// This machine's address on the way to a host, whatever its interface is called: its own address if the host is this
/// machine, else the one from which the kernel would connect. `None` for loopback.
pub fn address_towards(host: &str, own: &[Interface], env: &Environment) -> Option<IpAddr> {
    let addresses = resolve(host, env, Duration::from_secs(10)).ok()?;
    if let Some(ip) = addresses.iter().find(|ip| own.iter().any(|i| i.address == **ip && i.is_usable())) {
        return Some(*ip);
    }
    addresses.iter().filter(|ip| !ip.is_loopback()).find_map(|&ip| {
        let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        // Connecting a datagram socket sends nothing; the kernel only looks up the route.
        let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
        socket.connect((ip, 9)).ok()?;
        socket.local_addr().ok().map(|local| local.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    })
}

/// Addresses of this machine that others may reach, the best first: on the user's choice of an interface, on fast
/// networks, on the way to the rendezvous, then the others.
///
/// `route` is this machine's address on the way to the rendezvous. It counts whatever its interface is called; if
/// nothing is known, every usable address does.
pub fn own_addresses(all: &[Interface], env: &Environment, route: Option<IpAddr>) -> Result<Vec<IpAddr>> {
    let by_user = env.get("NCCL_SOCKET_IFNAME").is_some() || env.get("GLOO_SOCKET_IFNAME").is_some();
    let chosen = match choose_interface(all, env) {
        // The variable may be meant for NCCL on another machine: it is a preference here, not a condition.
        Err(e) if env.get("NCCL_SOCKET_IFNAME").is_some() && env.get("GLOO_SOCKET_IFNAME").is_none() => {
            rushlight_core::warn!("{e}; the usual choice is made instead");
            choose_interface(all, &Environment::default())?
        }
        chosen => chosen?,
    };
    let mut found: Vec<IpAddr> =
        chosen.iter().filter(|interface| by_user || interface.is_fast()).map(|interface| interface.address).collect();
    found.extend(route.filter(|ip| !ip.is_loopback()));
    found.extend(chosen.map(|interface| interface.address));
    if found.is_empty() {
        found.extend(all.iter().filter(|interface| interface.is_usable()).map(|interface| interface.address));
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|ip| seen.insert(*ip));
    Ok(found)
}

/// The interfaces of this machine that are up and have an address.
pub fn interfaces() -> Vec<Interface> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `getifaddrs` writes the head of a list that is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is an entry of the list; the list lives until `freeifaddrs`.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: the family says which type the address has; names end with a zero.
        let (name, address) = unsafe {
            let name = std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
            match (*entry.ifa_addr).sa_family as i32 {
                libc::AF_INET => {
                    let v4 = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    (name, IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
                }
                libc::AF_INET6 => {
                    let v6 = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    (name, IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
                }
                _ => continue,
            }
        };
        found.push(Interface { name, address });
    }
    // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Names of fast networks first, then the usual names of a cluster's network. Container bridges and tunnels are not
/// included.
const FAST: [&str; 2] = ["hsn", "ib"];
const PREFERRED: [&str; 8] = ["hsn", "ib", "bond", "en", "eth", "wl", "br0", "veth"];

/// The interface whose address other nodes should connect to.
///
/// NCCL_SOCKET_IFNAME decides, else GLOO_SOCKET_IFNAME, in NCCL's syntax: prefixes with commas between them, `=`
/// before exact names, `^` before names to avoid. Without them fast networks come first (`hsn`, `ib`, `bond`), IPv4
/// before IPv6. Link-local addresses are never chosen.
pub fn choose_interface(all: &[Interface], env: &Environment) -> Result<Option<Interface>> {
    let usable = |i: &&Interface| match i.address {
        IpAddr::V4(a) => !a.is_link_local(),
        IpAddr::V6(a) => (a.segments()[0] & 0xffc0) != 0xfe80,
    };
    let family = |i: &&Interface| i.address.is_ipv6();
    for variable in ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"] {
        let Some(value) = env.get(variable) else { continue };
        let (avoid, rest) = value.strip_prefix('^').map_or((false, value), |rest| (true, rest));
        let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let names: Vec<&str> = rest.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let place =
            |i: &Interface| names.iter().position(|n| if exact { i.name == **n } else { i.name.starts_with(n) });
        let chosen = if avoid {
            let left: Vec<Interface> = all.iter().filter(|i| place(i).is_none()).cloned().collect();
            preferred(&left)
        } else {
            all.iter().filter(usable).filter(|i| place(i).is_some()).min_by_key(|i| (place(i), family(i))).cloned()
        };
        return match chosen {
            Some(interface) => Ok(Some(interface)),
            None => {
                let mut have: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
                have.dedup();
                Err(Error::value(format!(
                    "launch: {variable}={value} leaves no interface with an address; this host has {}",
                    have.join(", ")
                )))
            }
        };
    }
    Ok(preferred(all))
}

fn preferred(all: &[Interface]) -> Option<Interface> {
    all.iter()
        .filter(|i| i.is_usable())
        .filter_map(|i| Some((PREFERRED.iter().position(|p| i.name.starts_with(p))?, i)))
        .min_by_key(|(place, i)| (*place, i.address.is_ipv6()))
        .map(|(_, i)| i.clone())
}

/// Resolves a host, without waiting for DNS longer than `limit`.
///
/// Literal addresses, this host's own name and names in `/etc/hosts` need no DNS. A lookup that is still running at
/// the limit continues in a separate thread and its answer is dropped.
pub fn resolve(host: &str, env: &Environment, limit: Duration) -> Result<Vec<IpAddr>> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse() {
        return Ok(vec![address]);
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if host == "localhost" || (!env.hostname().is_empty() && short(host) == short(env.hostname())) {
        return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    }
    let mut found = Vec::new();
    for line in env.read("/etc/hosts").unwrap_or_default().lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        if let Some(Ok(address)) = words.next().map(str::parse)
            && words.any(|name| name.eq_ignore_ascii_case(host))
        {
            found.push(address);
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new().name("resolve".into()).spawn(move || {
        let addresses = (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|a| a.ip()).collect::<Vec<_>>());
        let _ = sender.send(addresses);
    })?;
    match receiver.recv_timeout(limit) {
        Ok(Ok(mut addresses)) => {
            addresses.sort_by_key(IpAddr::is_ipv6);
            addresses.dedup();
            Ok(addresses)
        }
        Ok(Err(e)) => {
            Err(Error::io(format!("launch: the host {host} has no address ({e}); set MASTER_ADDR to an IP address")))
        }
        Err(_) => Err(Error::io(format!(
            "launch: no answer about the host {host} from DNS within {} s; set MASTER_ADDR to an IP address",
            limit.as_secs_f32()
        ))),
    }
}
