//! Topology: cores of each NUMA node, and the node of each worker.
//!
//! A page is placed on the node whose core writes to it first. Shares of regions of equal size are the same each time,
//! so a worker that stays on its node finds its earlier output there. On a machine with several nodes a worker is
//! therefore bound to the cores of one node, if the process may use them; the kernel still chooses among these. With
//! one node, no thread is bound.

use std::collections::BTreeSet;

type Cores = BTreeSet<usize>;

/// The NUMA nodes whose cores the process may use, in the order in which shares are spread over them.
#[derive(Debug, PartialEq, Eq)]
pub struct Nodes(Vec<Node>);

#[derive(Debug, PartialEq, Eq)]
struct Node {
    id: usize,
    package: usize,
    cores: Cores,
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
impl Nodes {
    /// The nodes of the cores in `allowed`, from the files under `/sys` that `read` returns. The node of the core
    /// `home`, where the caller of regions runs, comes first, then the others of its socket, then those of other
    /// sockets. `None` if there is one node, or the topology is unknown.
    fn parse(read: impl Fn(&str) -> Option<String>, allowed: &Cores, home: Option<usize>) -> Option<Self> {
        let online = list(&read("/sys/devices/system/cpu/online")?)?;
        let mut nodes = Vec::new();
        for id in list(&read("/sys/devices/system/node/online")?)? {
            let cores = list(&read(&format!("/sys/devices/system/node/node{id}/cpulist"))?)?;
            let cores: Cores = cores.intersection(&online).filter(|core| allowed.contains(core)).copied().collect();
            // Memory without cores, or cores of other processes.
            let Some(first) = cores.first() else { continue };
            let package = read(&format!("/sys/devices/system/cpu/cpu{first}/topology/physical_package_id"))
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(id);
            nodes.push(Node { id, package, cores });
        }
        let at_home = |node: &Node| home.is_some_and(|home| node.cores.contains(&home));
        let package = nodes.iter().find(|node| at_home(node)).map(|node| node.package);
        nodes.sort_by_key(|node| (Some(node.package) != package, node.package, !at_home(node), node.id));
        (nodes.len() > 1).then_some(Self(nodes))
    }

    /// The node of thread `number` out of `threads`: adjacent threads share a node, and nodes get threads in proportion
    /// to their cores.
    fn node(&self, number: usize, threads: usize) -> &Node {
        let total: usize = self.0.iter().map(|node| node.cores.len()).sum();
        // The middle of the thread's share of all cores.
        let at = (2 * number + 1) * total;
        let mut passed = 0;
        let found = self.0.iter().find(|node| {
            passed += node.cores.len();
            at <= 2 * passed * threads
        });
        found.unwrap_or(&self.0[self.0.len() - 1])
    }
}

/// Parses a list in the kernel's format: `0-3,8,10-11`. `None` if it is malformed.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn list(text: &str) -> Option<Cores> {
    let mut numbers = Cores::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let (first, last) = (number(first)?, number(last)?);
        // Bounds memory use: no kernel has more.
        if first > last || last >= 1 << 16 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(all(target_os = "linux", not(loom)))]
impl Nodes {
    /// The nodes of this machine that the calling thread may use. `OMP_PROC_BIND=false` leaves workers unbound.
    pub fn detect() -> Option<Self> {
        if std::env::var("OMP_PROC_BIND").is_ok_and(|bind| bind.trim().eq_ignore_ascii_case("false")) {
            return None;
        }
        // SAFETY: an all-zero set is a valid one; the call fills at most its size.
        let allowed: Cores = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
                return None;
            }
            (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &set)).collect()
        };
        // SAFETY: no arguments; a negative answer is an error.
        let home = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
        Self::parse(|path| std::fs::read_to_string(path).ok(), &allowed, home)
    }

    /// Binds the calling thread to the node of thread `number` out of `threads`.
    pub fn place(&self, number: usize, threads: usize) {
        // SAFETY: an all-zero set is a valid one; `CPU_SET` ignores cores beyond its size. If the kernel refuses, the
        // thread is not bound.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            self.node(number, threads).cores.iter().for_each(|&core| libc::CPU_SET(core, &mut set));
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(loom))))]
impl Nodes {
    /// Other systems place threads themselves.
    pub fn detect() -> Option<Self> {
        None
    }

    pub fn place(&self, _number: usize, _threads: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree under `/sys`: lines of a path, a space, and the file's contents.
    fn tree(text: &str) -> impl Fn(&str) -> Option<String> {
        let files: std::collections::HashMap<String, String> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(path, content)| (format!("/sys/devices/system/{path}"), format!("{content}\n")))
            .collect();
        move |path| files.get(path).cloned()
    }

    fn all() -> Cores {
        (0..1024).collect()
    }

    /// Node, socket and number of cores of each node in order.
    fn summary(nodes: &Nodes) -> Vec<(usize, usize, usize)> {
        nodes.0.iter().map(|node| (node.id, node.package, node.cores.len())).collect()
    }

    fn spread(nodes: &Nodes, threads: usize) -> Vec<usize> {
        (0..threads).map(|number| nodes.node(number, threads).id).collect()
    }

    /// Two sockets of 16 cores with two hardware threads each.
    const TWO_SOCKETS: &str = "cpu/online 0-63\nnode/online 0-1\nnode/node0/cpulist 0-15,32-47\nnode/node1/cpulist 16-31,48-63\n\
        cpu/cpu0/topology/physical_package_id 0\ncpu/cpu16/topology/physical_package_id 1";

    #[test]
    fn threads_are_spread_over_two_sockets() {
        let nodes = Nodes::parse(tree(TWO_SOCKETS), &all(), Some(3)).unwrap();
        assert_eq!(summary(&nodes), [(0, 0, 32), (1, 1, 32)]);
        assert_eq!(spread(&nodes, 2), [0, 1]);
        assert_eq!(spread(&nodes, 5), [0, 0, 0, 1, 1]);
        assert_eq!(spread(&nodes, 64), [[0; 32], [1; 32]].concat());
        assert_eq!(spread(&nodes, 512).iter().filter(|&&node| node == 0).count(), 256);
        // The caller's socket comes first.
        let nodes = Nodes::parse(tree(TWO_SOCKETS), &all(), Some(50)).unwrap();
        assert_eq!(spread(&nodes, 4), [1, 1, 0, 0]);
    }

    #[test]
    fn the_affinity_mask_is_respected() {
        let allowed = (0..6).chain([16, 17]).collect();
        let nodes = Nodes::parse(tree(TWO_SOCKETS), &allowed, Some(0)).unwrap();
        assert_eq!(summary(&nodes), [(0, 0, 6), (1, 1, 2)]);
        assert_eq!(spread(&nodes, 8), [0, 0, 0, 0, 0, 0, 1, 1]);
        assert!(nodes.0.iter().all(|node| node.cores.is_subset(&allowed)));
        // A process bound to one socket by its launcher needs no binding from us.
        assert_eq!(Nodes::parse(tree(TWO_SOCKETS), &(16..32).collect(), Some(16)), None);
    }

    #[test]
    fn a_socket_of_many_nodes_is_filled_before_the_next() {
        // 256 cores: two sockets of four nodes each (sub-NUMA clusters), the nodes of a socket not in order.
        let mut text = String::from("cpu/online 0-255\nnode/online 0-7\n");
        for (node, package) in [0, 1, 0, 1, 0, 1, 0, 1].into_iter().enumerate() {
            let first = node * 32;
            text += &format!("node/node{node}/cpulist {first}-{}\n", first + 31);
            text += &format!("cpu/cpu{first}/topology/physical_package_id {package}\n");
        }
        let nodes = Nodes::parse(tree(&text), &all(), Some(70)).unwrap();
        assert_eq!(nodes.0.iter().map(|node| node.id).collect::<Vec<_>>(), [2, 0, 4, 6, 1, 3, 5, 7]);
        let spread = spread(&nodes, 256);
        assert!(spread.chunks(32).all(|chunk| chunk.iter().all(|node| *node == chunk[0])));
    }

    #[test]
    fn offline_cores_and_nodes_without_cores_are_left_out() {
        // Node 1's second half is offline; node 2 has only memory, like an accelerator's or CXL's.
        let text = "cpu/online 0-7,8-11\nnode/online 0-2\nnode/node0/cpulist 0-7\nnode/node1/cpulist 8-15\nnode/node2/cpulist \n\
            cpu/cpu0/topology/physical_package_id 0\ncpu/cpu8/topology/physical_package_id 1";
        let nodes = Nodes::parse(tree(text), &all(), None).unwrap();
        assert_eq!(summary(&nodes), [(0, 0, 8), (1, 1, 4)]);
        assert_eq!(spread(&nodes, 3), [0, 0, 1]);
    }

    #[test]
    fn one_node_or_none_known_binds_nothing() {
        assert_eq!(Nodes::parse(|_| None, &all(), Some(0)), None);
        let one = "cpu/online 0-1\nnode/online 0\nnode/node0/cpulist 0-1\ncpu/cpu0/topology/physical_package_id 0";
        assert_eq!(Nodes::parse(tree(one), &all(), Some(0)), None);
        for broken in ["0-x", "5-3", "0-99999999999", "-"] {
            assert_eq!(list(broken), None, "{broken}");
        }
        assert_eq!(list("0-2,7,9-9\n"), Some([0, 1, 2, 7, 9].into()));
        assert_eq!(list("\n"), Some(Cores::new()));
    }
}
