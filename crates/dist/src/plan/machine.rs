//! Machines by their constants.

/// A machine. A device is what a rank uses: a GPU, a die of an MI250X, a tile of a PVC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// What it is called.
    pub name: &'static str,
    /// What its devices are.
    pub device: &'static str,
    /// Devices of a node.
    pub devices: usize,
    /// Peak of bf16 products, in operations per second.
    pub peak: f64,
    /// The share of the peak that blocks of a very wide model reach on one device.
    pub reach: f64,
    /// Memory of a device in bytes.
    pub memory: f64,
    /// Bytes per second that a device sends within a node in a collective.
    pub inside: f64,
    /// Bytes per second that a device sends between nodes when all of its node do.
    pub between: f64,
    /// Latency of a message between nodes, in seconds.
    pub latency: f64,
    /// Bytes per second between a device and the host's memory, and of updates there.
    pub host: f64,
}

/// PCIe 4 with 16 lanes.
const PCIE: f64 = 25e9;

/// Known machines. The share of the peak is from published runs on one node: Megatron's 49 % on H100 includes its
/// communication, as do 38 % on MI250X and 31 % on PVC.
pub const MACHINES: &[Machine] = &[
    Machine {
        name: "h100",
        device: "H100 SXM, 8 a node, NVLink, InfiniBand of 400 Gb/s a GPU",
        devices: 8,
        peak: 989e12,
        reach: 0.56,
        memory: 80e9,
        inside: 360e9,
        between: 45e9,
        latency: 8e-6,
        host: PCIE,
    },
    Machine {
        name: "frontier",
        device: "die of an MI250X, 8 a node, Slingshot of 4 x 200 Gb/s a node",
        devices: 8,
        peak: 191.5e12,
        reach: 0.48,
        memory: 64e9,
        inside: 75e9,
        between: 11e9,
        latency: 10e-6,
        host: PCIE,
    },
    Machine {
        name: "aurora",
        device: "tile of a PVC, 12 a node, Slingshot of 8 x 200 Gb/s a node",
        devices: 12,
        peak: 271e12,
        reach: 0.36,
        memory: 64e9,
        inside: 28e9,
        between: 14e9,
        latency: 10e-6,
        host: PCIE,
    },
];

impl Machine {
    /// A known machine by its name.
    pub fn named(name: &str) -> Option<Self> {
        MACHINES.iter().find(|machine| machine.name.eq_ignore_ascii_case(name)).copied()
    }
}
