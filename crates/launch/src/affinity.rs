//! Processor affinity: each rank is bound to NUMA nodes, near its GPU if it has one, and its number of threads is its
//! share of their cores.

use crate::options::Binding;
use std::collections::{BTreeMap, BTreeSet};

type Cpus = BTreeSet<usize>;

/// A rank's processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Processors to bind to; `None` leaves the rank unbound.
    pub cpus: Option<Vec<usize>>,
    /// Number of threads that the rank should use.
    pub threads: usize,
}

/// The processors this process may use, by NUMA node.
#[derive(Debug)]
pub struct Machine {
    /// Nodes in the order of their sockets, each with its processors.
    nodes: Vec<Cpus>,
    /// The kernel's numbers of these nodes.
    ids: Vec<usize>,
    /// Their sockets.
    packages: Vec<usize>,
    /// For each processor, the first of those that share its last-level cache.
    cache_of: BTreeMap<usize, usize>,
    /// For each processor, the first hardware thread of its core.
    core_of: BTreeMap<usize, usize>,
}

impl Machine {
    /// Reads the machine from the files under `/sys` that `read` returns. Without them all of `allowed` is one node.
    pub fn parse(read: impl Fn(&str) -> Option<String>, allowed: &Cpus) -> Self {
        // The first of the processors that a file of a processor lists.
        let first_of = |cpu: usize, file: &str| {
            let listed = read(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).and_then(|text| list(&text));
            listed.and_then(|cpus| cpus.first().copied())
        };
        let core_of =
            allowed.iter().map(|&cpu| (cpu, first_of(cpu, "topology/thread_siblings_list").unwrap_or(cpu))).collect();
        // Without an L3 cache, processors count as sharing one.
        let cache_of =
            allowed.iter().map(|&cpu| (cpu, first_of(cpu, "cache/index3/shared_cpu_list").unwrap_or(0))).collect();
        let mut nodes = Vec::new();
        for id in read("/sys/devices/system/node/online").and_then(|text| list(&text)).unwrap_or_default() {
            let cpus = read(&format!("/sys/devices/system/node/node{id}/cpulist")).and_then(|text| list(&text));
            let cpus: Cpus = cpus.unwrap_or_default().intersection(allowed).copied().collect();
            // Nodes without processors have only memory, or belong to other jobs.
            let Some(first) = cpus.first() else { continue };
            let package = read(&format!("/sys/devices/system/cpu/cpu{first}/topology/physical_package_id"));
            let package = package.and_then(|text| text.trim().parse().ok()).unwrap_or(id);
            nodes.push((package, id, cpus));
        }
        nodes.sort_by_key(|(package, id, _)| (*package, *id));
        if nodes.iter().map(|(_, _, cpus)| cpus.len()).sum::<usize>() != allowed.len() {
            nodes = vec![(0, 0, allowed.clone())];
        }
        let packages = nodes.iter().map(|(package, _, _)| *package).collect();
        let ids = nodes.iter().map(|(_, id, _)| *id).collect();
        let nodes = nodes.into_iter().map(|(_, _, cpus)| cpus).collect();
        Self { nodes, ids, packages, core_of, cache_of }
    }

    /// Assigns the ranks of a node. `limit` is the number of processors that cgroups allow to be busy; `gpus` has the
    /// NUMA node of each GPU. With as many ranks as GPUs, a rank is placed near its GPU.
    pub fn shares(&self, ranks: usize, binding: Binding, limit: usize, gpus: &[usize]) -> Vec<Share> {
        let total: usize = self.nodes.iter().map(Cpus::len).sum();
        // Ranks and nodes are mapped to the line of all processors. A rank gets the node at its middle; with fewer
        // ranks than nodes, the nodes whose middle is within its part.
        let chosen: Vec<Vec<usize>> = (0..ranks)
            .map(|rank| {
                let (from, to, middle) = (2 * rank * total, 2 * (rank + 1) * total, (2 * rank + 1) * total);
                let mut passed = 0;
                let mut own = Vec::new();
                for (index, node) in self.nodes.iter().enumerate() {
                    let (begin, end) = (2 * passed * ranks, 2 * (passed + node.len()) * ranks);
                    passed += node.len();
                    let has_middle = begin <= middle && middle < end;
                    let within = from <= (begin + end) / 2 && (begin + end) / 2 < to;
                    if if ranks < self.nodes.len() { within } else { has_middle } {
                        own.push(index);
                    }
                }
                own
            })
            .collect();
        let near: Option<Vec<Vec<usize>>> =
            gpus.iter().map(|gpu| Some(vec![self.ids.iter().position(|id| id == gpu)?])).collect();
        let chosen = near.filter(|near| near.len() == ranks).unwrap_or(chosen);
        let chosen = chosen.into_iter().map(|own| if own.is_empty() { (0..self.nodes.len()).collect() } else { own });
        let chosen: Vec<Vec<usize>> = match binding {
            Binding::Socket => chosen
                .map(|own| {
                    let package = self.packages[own[0]];
                    (0..self.nodes.len()).filter(|&node| self.packages[node] == package).collect()
                })
                .collect(),
            _ => chosen.collect(),
        };
        let bound = match binding {
            Binding::Node => ranks > 1 && self.nodes.len() > 1,
            Binding::None => false,
            Binding::Socket | Binding::Exclusive | Binding::CoreComplex => true,
        };
        let sharing = count(&chosen);
        let mut before: BTreeMap<&Vec<usize>, usize> = BTreeMap::new();
        let sets: Vec<Cpus> = chosen
            .iter()
            .map(|own| {
                let place = before.entry(own).or_default();
                let cpus: Cpus = own.iter().flat_map(|&node| self.nodes[node].iter().copied()).collect();
                let cpus = match binding {
                    Binding::Exclusive => self.part(&cpus, *place, sharing[own]),
                    Binding::CoreComplex => self.cache(&cpus, *place),
                    _ => cpus,
                };
                *place += 1;
                cpus
            })
            .collect();
        let having = count(&sets);
        let all: Cpus = self.nodes.iter().flatten().copied().collect();
        sets.iter()
            .map(|cpus| {
                let threads =
                    if bound { self.cores(cpus).len() / having[cpus] } else { self.cores(&all).len() / ranks.max(1) };
                let threads = threads.min(limit / ranks.max(1)).max(1);
                Share { cpus: bound.then(|| cpus.iter().copied().collect()), threads }
            })
            .collect()
    }

    /// The cores of processors.
    fn cores(&self, cpus: &Cpus) -> Cpus {
        cpus.iter().filter_map(|cpu| self.core_of.get(cpu)).copied().collect()
    }

    /// The processors of one of `parts` equal parts of the cores. With fewer cores than parts, some are shared.
    fn part(&self, cpus: &Cpus, index: usize, parts: usize) -> Cpus {
        let cores: Vec<usize> = self.cores(cpus).into_iter().collect();
        let own: Cpus = if parts <= cores.len() {
            cores[index * cores.len() / parts..(index + 1) * cores.len() / parts].iter().copied().collect()
        } else {
            Cpus::from([cores[index % cores.len()]])
        };
        cpus.iter().filter(|cpu| own.contains(&self.core_of[cpu])).copied().collect()
    }

    /// The processors of one of the caches, largest first, round robin.
    fn cache(&self, cpus: &Cpus, index: usize) -> Cpus {
        let mut groups: BTreeMap<usize, Cpus> = BTreeMap::new();
        for &cpu in cpus {
            groups.entry(self.cache_of[&cpu]).or_default().insert(cpu);
        }
        let mut groups: Vec<Cpus> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        groups[index % groups.len()].clone()
    }
}

/// The number of occurrences of each item.
fn count<T: Ord>(items: &[T]) -> BTreeMap<&T, usize> {
    let mut counts = BTreeMap::new();
    items.iter().for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

/// Parses a list in the kernel's format: `0-3,8`. `None` if it is malformed.
fn list(text: &str) -> Option<Cpus> {
    let mut numbers = Cpus::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        if first > last || last >= 1 << 16 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The processors this thread may use.
fn allowed() -> Cpus {
    // SAFETY: an all-zero set is a valid one; the call fills at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Cpus::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// A set of processors in the kernel's format.
pub fn cpu_set(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: an all-zero set is a valid one; numbers beyond its size are left out.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize).for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        set
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Widens an affinity mask of one core, which ranks would share, to all processors that cgroups allow. Returns their
/// number, if it has grown.
pub fn widen() -> Option<usize> {
    let before = allowed();
    let one_core = Machine::parse(read, &before).core_of.values().collect::<BTreeSet<_>>().len() == 1;
    let online = read("/sys/devices/system/cpu/online").and_then(|text| list(&text))?;
    if !one_core || online.len() <= before.len() {
        return None;
    }
    let set = cpu_set(&online.into_iter().collect::<Vec<_>>());
    // SAFETY: the set is valid. The kernel reduces the set to the cgroup's processors, or refuses.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    let now = allowed().len();
    (now > before.len()).then_some(now)
}

/// The shares of `ranks` ranks on this machine.
pub fn shares(ranks: usize, binding: Binding) -> Vec<Share> {
    let allowed = allowed();
    let limit = std::thread::available_parallelism().map_or(allowed.len(), usize::from);
    Machine::parse(read, &allowed).shares(ranks, binding, limit, &gpu_nodes(ranks))
}

/// NUMA nodes of the GPUs that ranks see, in the driver's order, which is the bus order; empty if unknown. Intel GPUs
/// show each of two tiles as a separate device.
fn gpu_nodes(ranks: usize) -> Vec<usize> {
    let mut buses: Vec<(String, u32)> = std::fs::read_dir("/sys/bus/pci/devices")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let bus = entry.file_name().to_string_lossy().into_owned();
            let number = |file: &str| {
                let text = read(&format!("/sys/bus/pci/devices/{bus}/{file}"))?;
                u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
            };
            is_gpu(number("vendor")?, number("class")?).then_some(number("vendor")?).map(|vendor| (bus, vendor))
        })
        .collect();
    buses.sort();
    // The vendor with the most GPUs: ranks do not use a board's integrated graphics.
    let count = |vendor: u32| buses.iter().filter(|(_, other)| *other == vendor).count();
    let Some(vendor) = [NVIDIA, AMD, INTEL].into_iter().max_by_key(|&vendor| count(vendor)) else { return Vec::new() };
    let variable = match vendor {
        NVIDIA => "CUDA_VISIBLE_DEVICES",
        AMD => "HIP_VISIBLE_DEVICES",
        _ => "ZE_AFFINITY_MASK",
    };
    let mut own: Vec<String> = buses.into_iter().filter(|(_, other)| *other == vendor).map(|(bus, _)| bus).collect();
    if vendor == INTEL && ranks == 2 * own.len() {
        own = own.into_iter().flat_map(|bus| [bus.clone(), bus]).collect();
    }
    let visible = std::env::var(variable).ok();
    let node = |bus: &String| read(&format!("/sys/bus/pci/devices/{bus}/numa_node"))?.trim().parse().ok();
    let nodes: Option<Vec<usize>> =
        visible_of(&own, visible.as_deref()).and_then(|v| v.into_iter().map(node).collect());
    nodes.unwrap_or_default()
}

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
const INTEL: u32 = 0x8086;

/// Whether a PCI device is a compute GPU: a display or 3D controller, or a processing accelerator.
fn is_gpu(vendor: u32, class: u32) -> bool {
    let kind = class >> 8;
    match vendor {
        NVIDIA => matches!(kind, 0x0300 | 0x0302),
        AMD => matches!(kind, 0x0300 | 0x0380 | 0x1200),
        INTEL => matches!(kind, 0x0380 | 0x0302),
        _ => false,
    }
}

/// The items of a list that the vendor's variable selects by number.
fn visible_of<'a>(all: &'a [String], visible: Option<&str>) -> Option<Vec<&'a String>> {
    match visible {
        None => Some(all.iter().collect()),
        Some(list) => list.split(',').map(|item| all.get(item.trim().parse::<usize>().ok()?)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets with two NUMA nodes each, of four cores with two hardware threads.
    fn machine(path: &str) -> Option<String> {
        let path = path.strip_prefix("/sys/devices/system/")?;
        if path == "node/online" {
            return Some("0-3\n".into());
        }
        if let Some(node) = path.strip_prefix("node/node").and_then(|rest| rest.strip_suffix("/cpulist")) {
            let first = node.parse::<usize>().ok()? * 4;
            return Some(format!("{first}-{},{}-{}\n", first + 3, first + 16, first + 19));
        }
        let (cpu, what) = path.strip_prefix("cpu/cpu")?.split_once('/')?;
        let cpu = cpu.parse::<usize>().ok()? % 16;
        match what.trim_start_matches("topology/") {
            // Two cores have a cache in common.
            "cache/index3/shared_cpu_list" => {
                let first = cpu / 2 * 2;
                Some(format!("{first}-{},{}-{}\n", first + 1, first + 16, first + 17))
            }
            "thread_siblings_list" => Some(format!("{cpu},{}\n", cpu + 16)),
            "physical_package_id" => Some(format!("{}\n", cpu / 8)),
            _ => None,
        }
    }

    fn spread(ranks: usize) -> Vec<(Option<usize>, usize, usize)> {
        let machine = Machine::parse(machine, &(0..32).collect());
        let shares = machine.shares(ranks, Binding::Node, 32, &[]);
        shares.iter().map(|s| (s.cpus.as_ref().map(|c| c[0]), s.cpus.as_ref().map_or(0, Vec::len), s.threads)).collect()
    }

    #[test]
    fn ranks_are_spread_over_numa_nodes() {
        assert_eq!(spread(1), [(None, 0, 16)]);
        assert_eq!(spread(2), [(Some(0), 16, 8), (Some(8), 16, 8)]);
        assert_eq!(spread(4), [(Some(0), 8, 4), (Some(4), 8, 4), (Some(8), 8, 4), (Some(12), 8, 4)]);
        assert_eq!(spread(8).iter().map(|s| (s.0.unwrap(), s.2)).collect::<Vec<_>>(), {
            [0, 0, 4, 4, 8, 8, 12, 12].map(|first| (first, 2))
        });
        assert!(spread(100).iter().all(|s| s.2 == 1 && s.1 == 8));
        // Every node has a rank, whatever the number.
        assert_eq!(spread(5).iter().map(|s| s.0).collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(spread(3).iter().map(|s| s.1).sum::<usize>(), 32);
    }

    #[test]
    fn one_node_binds_nothing_but_sizes_threads() {
        let machine = Machine::parse(|_| None, &(0..8).collect());
        assert_eq!(machine.shares(4, Binding::Node, 8, &[]), vec![Share { cpus: None, threads: 2 }; 4]);
        assert_eq!(machine.shares(4, Binding::Node, 4, &[])[0].threads, 1);
        assert_eq!(machine.shares(3, Binding::None, 8, &[])[0].threads, 2);
    }

    #[test]
    fn torchruns_bindings() {
        let machine = Machine::parse(machine, &(0..32).collect());
        let sets = |ranks, binding| -> Vec<Vec<usize>> {
            machine.shares(ranks, binding, 32, &[]).into_iter().map(|share| share.cpus.unwrap()).collect()
        };
        let socket =
            |first: usize| [first..first + 8, first + 16..first + 24].into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(sets(4, Binding::Socket), [socket(0), socket(0), socket(8), socket(8)]);
        assert_eq!(machine.shares(4, Binding::Socket, 32, &[])[0].threads, 4);
        assert_eq!(sets(8, Binding::Exclusive)[..3], [vec![0, 1, 16, 17], vec![2, 3, 18, 19], vec![4, 5, 20, 21]]);
        assert_eq!(sets(16, Binding::Exclusive)[1], [1, 17]);
        assert_eq!(sets(32, Binding::Exclusive).len(), 32);
        assert_eq!(sets(8, Binding::CoreComplex)[..2], [vec![0, 1, 16, 17], vec![2, 3, 18, 19]]);
        assert_eq!(machine.shares(8, Binding::CoreComplex, 32, &[])[0].threads, 2);
        assert_eq!(sets(1, Binding::CoreComplex), [vec![0, 1, 16, 17]]);
        assert!(is_gpu(NVIDIA, 0x030200) && is_gpu(AMD, 0x120000) && !is_gpu(INTEL, 0x060000));
    }

    #[test]
    fn the_mask_is_respected() {
        let machine = Machine::parse(machine, &(0..6).collect());
        let shares = machine.shares(2, Binding::Node, 6, &[]);
        assert_eq!(shares[0].cpus, Some(vec![0, 1, 2, 3]));
        assert!(shares.iter().flat_map(|s| s.cpus.clone().unwrap()).all(|cpu| cpu < 6));
    }

    #[test]
    fn ranks_are_near_their_gpus() {
        let machine = Machine::parse(machine, &(0..32).collect());
        let first = |gpus: &[usize]| -> Vec<usize> {
            machine.shares(4, Binding::Node, 32, gpus).into_iter().map(|share| share.cpus.unwrap()[0]).collect()
        };
        assert_eq!(first(&[3, 3, 1, 1]), [12, 12, 4, 4]);
        assert_eq!(machine.shares(4, Binding::Node, 32, &[3, 3, 1, 1])[0].threads, 2);
        // Fewer GPUs than ranks, or a GPU on a node that we may not use.
        assert_eq!(first(&[3, 3]), [0, 4, 8, 12]);
        assert_eq!(first(&[3, 3, 1, 9]), [0, 4, 8, 12]);
        let buses = ["a".to_owned(), "b".to_owned()];
        assert_eq!(visible_of(&buses, None).unwrap().len(), 2);
        assert_eq!(visible_of(&buses, Some("1")).unwrap(), [&buses[1]]);
        assert_eq!(visible_of(&buses, Some("GPU-77")), None);
    }
}
