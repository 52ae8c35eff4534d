//! Finding libmpi: the one already loaded, the launcher's own, or the system's.

use super::abi::{Constants, Family, Functions, family};
use crate::launch::{Environment, Launcher, detect_from};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use rushlight_core::{Error, Result};
use std::path::{Path, PathBuf};

/// Names the library to open, by path or file name.
pub(super) const VARIABLE: &str = "RUSHLIGHT_MPI_LIBRARY";
/// RTLD_NOLOAD: opens a library only if it is loaded already.
const LOADED_ONLY: i32 = libc::RTLD_NOLOAD;

/// Names of MPICH and derivatives, and of Open MPI. The standard ABI comes last: a launcher's own library is a safer
/// match.
const MPICH_NAMES: [&str; 5] =
    ["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12", "libmpi_abi.so.1"];
const OPEN_MPI_NAMES: [&str; 2] = ["libmpi.so.40", "libmpi_abi.so.1"];
const OTHER_NAMES: [&str; 2] = ["libmpi.so", "libmpi_abi.so"];
/// Programs that start ranks. A library in the `lib` next to their `bin` belongs to them.
const LAUNCHERS: [&str; 10] = [
    "hydra_pmi_proxy",
    "mpiexec.hydra",
    "mpiexec",
    "mpirun",
    "orted",
    "orterun",
    "prted",
    "prterun",
    "mpiexec.mpich",
    "mpiexec.openmpi",
];

/// An open libmpi.
pub(super) struct Mpi {
    pub(super) functions: Functions,
    pub(super) constants: Constants,
    pub(super) family: Family,
    /// First line of its version text.
    pub(super) version: String,
    /// As it was opened.
    pub(super) path: String,
}

/// Opens the library for this process: at most once, because MPI cannot be initialised twice.
pub(super) fn open(env: &Environment) -> Result<Mpi> {
    let mut tried = Vec::new();
    for (path, flags, why) in candidates(env) {
        let name = path.display().to_string();
        // SAFETY: opening a library runs its initialisers. These are known MPI libraries, or the user's choice.
        match unsafe { Library::open(Some(&path), flags) } {
            Ok(library) => match bind(library, &name) {
                Ok(mpi) => return Ok(mpi),
                Err(reason) => tried.push(format!("{name} ({why}): {reason}")),
            },
            Err(e) => {
                let reason = e.to_string();
                // The system's message repeats the name.
                let reason = reason.strip_prefix(&format!("{name}: ")).unwrap_or(&reason).to_owned();
                tried.push(format!("{name} ({why}): {reason}"));
            }
        }
        if why == VARIABLE {
            break;
        }
    }
    Err(Error::unsupported(format!(
        "init_process_group: no MPI library could be opened. Load the cluster's MPI module, set {VARIABLE} to the \
         path of libmpi.so, or use the backend tcp, which needs none. Tried:\n  {}",
        tried.join("\n  ")
    )))
}

/// Loads the functions and constants of an open library, which stays open.
fn bind(library: Library, path: &str) -> std::result::Result<Mpi, String> {
    let functions = Functions::load(&library)?;
    let version = functions.version();
    let family = family(&library, &version)?;
    let constants = Constants::new(family, &library)?;
    // Never closed: MPI's own threads and exit handlers live in it.
    std::mem::forget(library);
    let version = version.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Mpi { functions, constants, family, version, path: path.into() })
}

/// Libraries to try, best first, with the reason.
fn candidates(env: &Environment) -> Vec<(PathBuf, i32, &'static str)> {
    let usual = RTLD_NOW | RTLD_GLOBAL;
    if let Some(path) = env.get(VARIABLE) {
        return vec![(path.into(), usual, VARIABLE)];
    }
    let mut list: Vec<(PathBuf, i32, &'static str)> = Vec::new();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for path in loaded(&maps) {
        list.push((path, usual | LOADED_ONLY, "in use in this process"));
    }
    let names = names(env);
    for directory in launcher_directories(env) {
        for name in &names {
            let path = directory.join(name);
            if path.exists() {
                list.push((path, usual, "next to the launcher"));
            }
        }
    }
    list.extend(names.iter().map(|name| (name.into(), usual, "system libraries")));
    list
}

/// Names to look for, those of the launcher's family first.
fn names(env: &Environment) -> Vec<&'static str> {
    let launcher = detect_from(env).map(|launch| launch.launcher).ok();
    let open_mpi = launcher == Some(Launcher::OpenMpi)
        || env.get("OMPI_COMM_WORLD_RANK").is_some()
        || env.get("PMIX_RANK").is_some() && env.get("PMI_RANK").is_none();
    let (first, second) = match open_mpi {
        true => (&OPEN_MPI_NAMES[..], &MPICH_NAMES[..]),
        false => (&MPICH_NAMES[..], &OPEN_MPI_NAMES[..]),
    };
    let mut names: Vec<&str> = first.to_vec();
    names.extend(second.iter().chain(&OTHER_NAMES).filter(|name| !first.contains(name)));
    names
}

/// MPI libraries among the mappings of a process, as `/proc/self/maps` lists them.
fn loaded(maps: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in maps.lines().filter_map(|line| line.splitn(6, ' ').nth(5)).map(|path| PathBuf::from(path.trim())) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = name.split(".so").next().unwrap_or_default();
        let is_mpi = name.contains(".so") && (stem == "libmpi" || stem == "libmpich" || stem == "libmpi_abi")
            || ["libmpi_cray", "libmpi_gnu", "libmpi_intel", "libmpi_nvidia", "libmpi_amd"]
                .iter()
                .any(|cray| stem.starts_with(cray));
        if is_mpi && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Directories of libraries that belong to the launcher: from its variables, or next to the program that started us.
fn launcher_directories(env: &Environment) -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = Vec::new();
    for (variable, below) in [
        ("I_MPI_ROOT", "lib/release"),
        ("I_MPI_ROOT", "lib"),
        ("OPAL_PREFIX", "lib"),
        ("CRAY_MPICH_DIR", "lib"),
        ("MPI_HOME", "lib"),
        ("MPI_ROOT", "lib"),
    ] {
        list.extend(env.get(variable).map(|root| Path::new(root).join(below)));
    }
    // A shell or an interpreter may be between the launcher and this process.
    // SAFETY: `getppid` has no preconditions.
    let mut process = unsafe { libc::getppid() };
    for _ in 0..8 {
        if process <= 1 {
            break;
        }
        let exe = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
        let is_launcher = exe.file_name().is_some_and(|name| LAUNCHERS.iter().any(|l| name.to_string_lossy() == *l));
        if is_launcher && let Some(prefix) = exe.parent().and_then(Path::parent) {
            list.extend(["lib", "lib64", "lib/release"].map(|below| prefix.join(below)));
            break;
        }
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).and_then(|p| p.trim().parse().ok());
        process = parent.unwrap_or(0);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_in_use_are_found_in_the_mappings() {
        let maps = "\
7f00 r-xp 0 08:01 1                          /usr/lib/libmpich.so.12.2.2
7f01 r--p 0 08:01 1                          /usr/lib/libmpich.so.12.2.2
7f02 r--p 0 08:01 2                          /opt/cray/pe/lib64/libmpi_gnu_123.so.12
7f03 r--p 0 08:01 3                          /usr/lib/libmpifort.so.12
7f04 r--p 0 08:01 4                          /usr/lib/libmpi_usempif08.so.40
7f05 rw-p 0 00:00 0
7f06 r-xp 0 08:01 5                          /a b/lib/libmpi.so.40.30.4";
        let expected =
            ["/usr/lib/libmpich.so.12.2.2", "/opt/cray/pe/lib64/libmpi_gnu_123.so.12", "/a b/lib/libmpi.so.40.30.4"];
        assert_eq!(loaded(maps), expected.map(PathBuf::from));
    }

    #[test]
    fn the_launcher_decides_which_library_comes_first() {
        let first = |lines: &str| names(&Environment::recorded(lines))[0];
        assert_eq!(first("PMI_RANK=0\nPMI_SIZE=2\nMPI_LOCALRANKID=0"), "libmpi.so.12");
        assert_eq!(first("OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2"), "libmpi.so.40");
        assert_eq!(first("PMIX_RANK=0"), "libmpi.so.40");
        assert_eq!(first(""), "libmpi.so.12");
    }

    #[test]
    fn a_missing_library_is_an_error_that_says_what_was_tried() {
        let env = Environment::recorded("RUSHLIGHT_MPI_LIBRARY=/nowhere/libmpi.so");
        let message = open(&env).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("/nowhere/libmpi.so (RUSHLIGHT_MPI_LIBRARY)"), "{message}");
        assert!(message.contains("backend tcp"), "{message}");
        // A library that is not MPI.
        let env = Environment::recorded("RUSHLIGHT_MPI_LIBRARY=libc.so.6");
        let message = open(&env).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("it has no function MPI_Initialized"), "{message}");
    }
}
