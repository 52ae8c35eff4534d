//! The table of launchers: which variables each one sets.

use super::Environment;
use std::fmt;

/// The launcher of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// PyTorch's `torchrun`.
    Torchrun,
    /// `srun` with the plugin `mpi/cray_shasta`, as on Frontier.
    CrayShasta,
    /// HPE's PALS `mpiexec`, as on Aurora.
    Pals,
    /// LSF's `jsrun`.
    Jsrun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MVAPICH's `mpirun_rsh`.
    Mvapich,
    /// Hydra: `mpiexec` of MPICH and Intel MPI.
    Hydra,
    /// `flux run`.
    Flux,
    /// A step of Slurm: `srun`.
    Slurm,
    /// Kubeflow's training operator.
    Kubeflow,
    /// RANK and WORLD_SIZE, set by a script or a parent process.
    Environment,
    /// None: one process.
    Single,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Torchrun => "torchrun",
            Launcher::CrayShasta => "srun with cray_shasta",
            Launcher::Pals => "PALS mpiexec",
            Launcher::Jsrun => "jsrun",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Mvapich => "MVAPICH",
            Launcher::Hydra => "Hydra (MPICH, Intel MPI)",
            Launcher::Flux => "Flux",
            Launcher::Slurm => "Slurm srun",
            Launcher::Kubeflow => "Kubeflow",
            Launcher::Environment => "RANK and WORLD_SIZE",
            Launcher::Single => "no launcher",
        })
    }
}

/// Names of variables in order of preference. All that are set must agree.
type Names = &'static [&'static str];

/// A launcher's variables.
pub(super) struct Row {
    pub launcher: Launcher,
    /// The row applies if one variable of every list is set.
    pub requires: &'static [Names],
    pub rank: Names,
    pub size: Names,
    pub local_rank: Names,
    pub local_size: Names,
    pub node_rank: Names,
    pub nodes: Names,
    /// Variables that identify the job: all that are set, together.
    pub job: Names,
    /// Random values that only this job's processes are given.
    pub secret: Names,
}

impl Row {
    pub fn applies(&self, env: &Environment) -> bool {
        self.requires.iter().all(|any| any.iter().any(|name| env.get(name).is_some()))
            && (self.launcher != Launcher::Slurm && self.launcher != Launcher::CrayShasta || in_slurm_step(env))
    }
}

/// Slurm's numbers of the steps that are the batch script and the interactive shell: not started by `srun`.
const NOT_A_TASK: [&str; 2] = ["4294967291", "4294967290"];

/// Whether `srun` started this process, rather than a batch script or a shell of the allocation.
pub(super) fn in_slurm_step(env: &Environment) -> bool {
    let step = env.get("SLURM_STEP_ID").or(env.get("SLURM_STEPID"));
    step.is_some_and(|step| !NOT_A_TASK.contains(&step)) && env.get("SLURM_PROCID").is_some()
}

const NONE: Names = &[];

/// Innermost first: `torchrun` may run inside `mpiexec`, which may run inside a Slurm step.
///
/// Hydra is recognised by MPI_LOCALRANKID: Slurm's `--mpi=pmi2` and Flux set PMI_RANK and PMI_SIZE as well. A Hydra
/// inside a Slurm step must come before Slurm: there SLURM_PROCID counts Hydra's proxies, not the ranks.
pub(super) const ROWS: &[Row] = &[
    Row {
        launcher: Launcher::Torchrun,
        requires: &[&["TORCHELASTIC_RUN_ID"], &["RANK"]],
        rank: &["RANK"],
        size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
        node_rank: &["GROUP_RANK"],
        nodes: &["GROUP_WORLD_SIZE"],
        job: &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::CrayShasta,
        requires: &[&["PALS_RANKID", "PMI_SHARED_SECRET"], &["SLURM_STEP_NUM_TASKS", "PMI_SIZE"]],
        rank: &["SLURM_PROCID", "PALS_RANKID", "PMI_RANK"],
        size: &["SLURM_STEP_NUM_TASKS", "PMI_SIZE"],
        local_rank: &["SLURM_LOCALID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"],
        local_size: &["PMI_LOCAL_SIZE"],
        node_rank: &["SLURM_NODEID", "PALS_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES"],
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
        secret: &["PMI_SHARED_SECRET"],
    },
    Row {
        launcher: Launcher::Pals,
        requires: &[&["PALS_RANKID"]],
        rank: &["PALS_RANKID"],
        // Completed in `complete_pals`: PALS exports no reliable size.
        size: NONE,
        local_rank: &["PALS_LOCAL_RANKID"],
        local_size: &["PALS_LOCAL_SIZE"],
        node_rank: &["PALS_NODEID"],
        nodes: NONE,
        job: &["PBS_JOBID", "PALS_APID"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::Jsrun,
        requires: &[&["JSM_NAMESPACE_RANK"]],
        rank: &["JSM_NAMESPACE_RANK"],
        size: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        local_size: &["JSM_NAMESPACE_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"],
        node_rank: NONE,
        nodes: NONE,
        job: &["LSB_JOBID", "PMIX_NAMESPACE"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::OpenMpi,
        requires: &[&["OMPI_COMM_WORLD_RANK"]],
        rank: &["OMPI_COMM_WORLD_RANK", "PMIX_RANK"],
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        // OMPI_COMM_WORLD_NODE_RANK is a rank within the node, not the node's index.
        node_rank: NONE,
        nodes: NONE,
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        secret: &["OMPI_MCA_orte_precondition_transports"],
    },
    Row {
        launcher: Launcher::Mvapich,
        requires: &[&["MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"]],
        rank: &["MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"],
        size: &["MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK"],
        local_size: &["MV2_COMM_WORLD_LOCAL_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"],
        node_rank: NONE,
        nodes: NONE,
        job: &["MPIRUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::Hydra,
        requires: &[&["PMI_RANK"], &["MPI_LOCALRANKID"]],
        rank: &["PMI_RANK"],
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        local_size: &["MPI_LOCALNRANKS"],
        node_rank: NONE,
        nodes: NONE,
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::Flux,
        requires: &[&["FLUX_TASK_RANK"]],
        rank: &["FLUX_TASK_RANK"],
        size: &["FLUX_JOB_SIZE"],
        local_rank: &["FLUX_TASK_LOCAL_ID"],
        local_size: NONE,
        node_rank: NONE,
        nodes: &["FLUX_JOB_NNODES"],
        job: &["FLUX_JOB_ID"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::Slurm,
        requires: &[&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]],
        // With --mpi=pmi2 and --mpi=pmix Slurm sets both. A Hydra that does not set MPI_LOCALRANKID shows as a
        // contradiction here.
        rank: &["SLURM_PROCID", "PMI_RANK", "PMIX_RANK"],
        size: &["SLURM_STEP_NUM_TASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: NONE,
        node_rank: &["SLURM_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES"],
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
        secret: NONE,
    },
    Row {
        // Another process manager with PMI. Last of the MPI rows: Slurm and Flux set these variables too.
        launcher: Launcher::Hydra,
        requires: &[&["PMI_RANK"], &["PMI_SIZE"]],
        rank: &["PMI_RANK"],
        size: &["PMI_SIZE"],
        local_rank: &["PMI_LOCAL_RANK"],
        local_size: &["PMI_LOCAL_SIZE"],
        node_rank: NONE,
        nodes: NONE,
        job: &["PMI_JOBID", "PBS_JOBID", "LSB_JOBID"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::Kubeflow,
        requires: &[&["RANK"], &["WORLD_SIZE"], &["PET_NNODES", "PET_NODE_RANK", "KUBERNETES_SERVICE_HOST"]],
        rank: &["RANK"],
        size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
        node_rank: &["PET_NODE_RANK"],
        nodes: &["PET_NNODES"],
        job: &["MASTER_ADDR", "MASTER_PORT"],
        secret: NONE,
    },
    Row {
        launcher: Launcher::Environment,
        requires: &[&["RANK"], &["WORLD_SIZE"]],
        rank: &["RANK"],
        size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
        node_rank: &["GROUP_RANK"],
        nodes: &["GROUP_WORLD_SIZE"],
        job: &["MASTER_ADDR", "MASTER_PORT"],
        secret: NONE,
    },
];
