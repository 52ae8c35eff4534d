//! Known machines: the lines their manuals require in batch scripts.

use super::Scheduler;

/// Settings of a machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub name: &'static str,
    pub scheduler: Scheduler,
    /// Devices per node as programs see them: tiles of Intel GPUs, dies of AMD GPUs.
    pub gpus: usize,
    /// GPUs per node as the scheduler counts them.
    pub cards: usize,
    /// Processors per node that jobs may use; 0 leaves it to the scheduler.
    pub cpus: usize,
    /// Whether `cpus` counts per requested GPU instead of per node.
    pub cpus_by_gpu: bool,
    pub queue: Option<&'static str>,
    /// Directives that every job there needs.
    pub directives: &'static [&'static str],
    pub variables: &'static [(&'static str, &'static str)],
    /// A directory on the node's local disk or memory.
    pub local_folder: &'static str,
}

pub(super) const MACHINES: &[Machine] = &[
    Machine {
        name: "aurora",
        scheduler: Scheduler::Pbs,
        gpus: 12,
        cards: 6,
        cpus: 0,
        cpus_by_gpu: false,
        queue: Some("debug"),
        directives: &["-l filesystems=home:flare", "-k doe"],
        variables: &[("FI_MR_CACHE_MONITOR", "userfaultfd"), ("NCCL_SOCKET_IFNAME", "hsn0")],
        local_folder: "/tmp",
    },
    Machine {
        name: "frontier",
        scheduler: Scheduler::Slurm,
        gpus: 8,
        cards: 8,
        cpus: 56,
        cpus_by_gpu: false,
        queue: Some("batch"),
        directives: &[],
        variables: &[
            ("NCCL_SOCKET_IFNAME", "hsn0"),
            ("MIOPEN_USER_DB_PATH", "/tmp/miopen-cache"),
            ("MIOPEN_CUSTOM_CACHE_DIR", "/tmp/miopen-cache"),
        ],
        local_folder: "/tmp",
    },
    Machine {
        name: "dawn",
        scheduler: Scheduler::Slurm,
        gpus: 8,
        cards: 4,
        cpus: 96,
        cpus_by_gpu: false,
        queue: None,
        directives: &[],
        variables: &[],
        local_folder: "/tmp",
    },
    Machine {
        name: "alliance",
        scheduler: Scheduler::Slurm,
        gpus: 1,
        cards: 1,
        cpus: 6,
        cpus_by_gpu: true,
        queue: None,
        directives: &[],
        variables: &[],
        local_folder: "${SLURM_TMPDIR:-/tmp}",
    },
    Machine {
        name: "h100",
        scheduler: Scheduler::Slurm,
        gpus: 2,
        cards: 2,
        cpus: 32,
        cpus_by_gpu: false,
        queue: Some("gpu2h100"),
        directives: &[],
        variables: &[("NCCL_SOCKET_IFNAME", "bond0")],
        local_folder: "/tmp",
    },
];
