//! Two hosts with addresses of their own: network namespaces of this machine, joined by a virtual cable.

use crate::collectives::everything;
use crate::support::Ranks;
use rushlight_dist::ReduceOp;
use rushlight_tensor::Tensor;
use std::process::{Command, Stdio};

/// The network namespaces of one test, removed when dropped.
struct Hosts(String);

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Err(format!("ip: {e}")),
    }
}

/// The namespace of a host. Ranks inherit the name from the test that started them.
fn namespace(test: &str, host: usize) -> String {
    let id = std::env::var("RUSHLIGHT_TEST_HOSTS").unwrap_or_else(|_| std::process::id().to_string());
    format!("rl{id}{test}{host}")
}

impl Hosts {
    /// `interface` is the name of both ends of the cable.
    fn new(test: &str, interface: &str) -> Result<Self, String> {
        let [a, b] = [0, 1].map(|host| namespace(test, host));
        let hosts = Self(test.into());
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add {interface} netns {a} type veth peer name {interface} netns {b}"))?;
        for (host, name) in [a, b].iter().enumerate() {
            ip(&format!("-n {name} addr add 10.77.0.{}/24 dev {interface}", host + 1))?;
            ip(&format!("-n {name} link set {interface} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..2 {
            let _ = ip(&format!("netns del {}", namespace(&self.0, host)));
        }
    }
}

/// Ranks alternate between two hosts; they rendezvous at the first one's address. Not permitted in most containers:
/// then skipped, in CI as well.
fn two_hosts(test: &'static str, short: &'static str, interface: &str, ranks: Ranks) -> Option<(Ranks, Option<Hosts>)> {
    if std::env::var_os("RUSHLIGHT_TEST_HOSTS").is_some() {
        return Some((ranks, None));
    }
    match Hosts::new(short, interface) {
        Ok(hosts) => {
            let id = std::process::id().to_string();
            let prefix = move |rank: usize| {
                ["ip", "netns", "exec", &namespace(short, rank % 2), "env", &format!("RUSHLIGHT_TEST_HOSTS={id}")]
                    .map(str::to_owned)
                    .to_vec()
            };
            Some((ranks.prefix(prefix), Some(hosts)))
        }
        Err(e) => {
            println!("skipped: {test} needs network namespaces: {e}");
            None
        }
    }
}

fn variables(rank: usize) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "3".into()),
        ("MASTER_ADDR", "10.77.0.1".into()),
        ("MASTER_PORT", "20077".into()),
        ("RUSHLIGHT_JOB_SECRET", "of this test".into()),
    ]
}

#[test]
fn collectives_between_hosts() {
    let test = "hosts::collectives_between_hosts";
    let ranks = Ranks::new(test, 3).nodes(2).launched(variables);
    if let Some((ranks, _hosts)) = two_hosts(test, "a", "eth0", ranks) {
        ranks.run(everything);
    }
}

/// The name of an interface does not matter: the address follows from the route to MASTER_ADDR.
#[test]
fn an_interface_of_any_name() {
    let test = "hosts::an_interface_of_any_name";
    let ranks = Ranks::new(test, 3).nodes(2).launched(variables).timeout(std::time::Duration::from_secs(20));
    if let Some((ranks, _hosts)) = two_hosts(test, "c", "vA", ranks) {
        ranks.run(|world| {
            let x = Tensor::ones([1000]).unwrap();
            world.all_reduce(&x, ReduceOp::Sum).unwrap();
            assert_eq!(x.sum(..).unwrap().item::<f64>().unwrap(), 3000.0);
        });
    }
}

/// The cable is cut: neither side hears from the other, and both must report it.
#[test]
fn a_cut_cable() {
    let test = "hosts::a_cut_cable";
    let ranks = Ranks::new(test, 3).nodes(2).launched(variables).timeout(std::time::Duration::from_secs(4));
    if let Some((ranks, _hosts)) = two_hosts(test, "b", "eth0", ranks) {
        ranks.run(|world| {
            world.barrier().unwrap();
            if world.rank() == 1 {
                ip("link set eth0 down").unwrap();
            }
            let message = world.all_reduce(&Tensor::ones([100_000]).unwrap(), ReduceOp::Sum).unwrap_err().to_string();
            let other = if world.rank() == 1 { ["rank 0", "rank 2"] } else { ["rank 1", "timed out"] };
            assert!(other.iter().any(|word| message.contains(word)), "{message}");
        });
    }
}
