//! Checks for common faults of clusters: limits, masks, disks, networks, libraries.

use super::Report;
use std::path::{Path, PathBuf};

/// Speeds below this, in Mbit/s, hold back jobs of several nodes.
const SLOW_LINK: i64 = 10_000;
/// Open files that a job of some hundred ranks and a loader need.
const FEW_FILES: u64 = 4096;
/// Shared memory in MiB below which ranks of a node have no room for their buffers.
const SMALL_SHM: u64 = 64;

/// Runs all checks.
pub fn run(report: &mut Report) {
    processors(report);
    limits(report);
    disks(report);
    caches(report);
    networks(report);
    libraries(report);
    drivers(report);
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn processors(report: &mut Report) {
    // SAFETY: the set is plain data, and the kernel writes no more than its size.
    let allowed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let known = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) == 0;
        if known { libc::CPU_COUNT(&set) as usize } else { 0 }
    };
    // SAFETY: takes a constant.
    let online = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1);
    report.fact("processors", format!("{allowed} of {online} may be used by this process"));
    if allowed == 1 && online > 1 {
        report.finding(
            format!("this process may use 1 of {online} processors: an affinity mask that its children inherit"),
            "start with `srun --cpu-bind=none` or `--cpus-per-task`, or by `rushlight run`, which widens such a mask",
        );
    }
    let ranks = variable("LOCAL_WORLD_SIZE").and_then(|text| text.parse::<usize>().ok()).unwrap_or(1);
    if variable("OMP_NUM_THREADS").as_deref() == Some("1") && allowed / ranks.max(1) > 1 {
        report.finding(
            format!("OMP_NUM_THREADS=1 holds each process to one of {allowed} processors"),
            "unset it: `rushlight run` divides the processors among the ranks",
        );
    }
}

/// C libraries disagree on the type of these constants.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn limit(resource: Resource) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for the call.
    unsafe { libc::getrlimit(resource, &mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

fn limits(report: &mut Report) {
    let show = |n: u64| if n == libc::RLIM_INFINITY { "unlimited".into() } else { n.to_string() };
    let (files, most) = limit(libc::RLIMIT_NOFILE);
    report.fact("open files", format!("{}, at most {}", show(files), show(most)));
    if most < FEW_FILES {
        report.finding(
            format!("a process may open no more than {most} files"),
            "ask the administrators for a hard limit (ulimit -Hn) of 65536; workers of loaders and connections need them",
        );
    }
    let (locked, _) = limit(libc::RLIMIT_MEMLOCK);
    let kib = |n: u64| if n == libc::RLIM_INFINITY { "unlimited".into() } else { format!("{} KiB", n / 1024) };
    report.fact("locked memory", kib(locked));
    if locked != libc::RLIM_INFINITY && Path::new("/sys/class/infiniband").is_dir() {
        report.finding(
            format!("this machine has RDMA, but memory may be locked up to {} KiB only", locked / 1024),
            "`ulimit -l unlimited` in the job, or PropagateResourceLimitsExcept=MEMLOCK in Slurm's configuration",
        );
    }
    let (stack, _) = limit(libc::RLIMIT_STACK);
    let (processes, _) = limit(libc::RLIMIT_NPROC);
    report.fact("stack, processes", format!("{}, {}", kib(stack), show(processes)));
    if processes < 1024 {
        report.finding(format!("this user may have {processes} processes and threads"), "raise it: `ulimit -u 4096`");
    }
}

/// A file system: its kind, MiB free, and files that can still be made there.
struct FileSystem {
    kind: String,
    is_shared: bool,
    free: u64,
    files: u64,
}

fn file_system(path: &Path) -> Option<FileSystem> {
    let found = path.ancestors().find(|p| p.exists())?;
    let name = std::ffi::CString::new(found.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: the name ends with a zero and the structure is valid for the call.
    let stat = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        (libc::statfs(name.as_ptr(), &mut stat) == 0).then_some(stat)?
    };
    // The kernel's magic numbers; those of parallel file systems are their vendors'.
    let (kind, is_shared) = match stat.f_type as u64 & 0xffff_ffff {
        0x6969 => ("NFS", true),
        0x0BD0_0BD0 => ("Lustre", true),
        0x4750_4653 => ("GPFS", true),
        0x1983_0326 => ("BeeGFS", true),
        0xFF53_4D42 | 0xFE53_4D42 => ("SMB", true),
        0x00C3_6400 => ("Ceph", true),
        0x6573_5546 => ("FUSE", true),
        0x0102_1994 => ("memory", false),
        0xEF53 => ("ext4", false),
        0x5846_5342 => ("XFS", false),
        0x794C_7630 => ("overlay", false),
        _ => ("local", false),
    };
    let block = stat.f_bsize.max(1) as u64;
    // File systems without a table of files say 0 of 0.
    let files = if stat.f_files == 0 { u64::MAX } else { stat.f_ffree };
    Some(FileSystem { kind: kind.into(), is_shared, free: (stat.f_bavail * block) >> 20, files })
}

fn disks(report: &mut Report) {
    let mut places = vec![("working folder", std::env::current_dir().unwrap_or_default(), 1024)];
    places.push(("temporary files", std::env::temp_dir(), 256));
    places.push(("shared memory", PathBuf::from("/dev/shm"), SMALL_SHM));
    places.extend(variable("HOME").map(|home| ("home", PathBuf::from(home), 256)));
    for (name, path, least) in places {
        let Some(found) = file_system(&path) else {
            report
                .finding(format!("{name}: {} cannot be looked at", path.display()), "make the folder, or name another");
            continue;
        };
        let shown = path.display();
        report.fact(name, format!("{shown}, {}, {} MiB free", found.kind, found.free));
        if found.free < least {
            let advice = if name == "shared memory" {
                "start the container with --shm-size=1g or --ipc=host"
            } else {
                "make room before a checkpoint needs it: see `quota -s` or `lfs quota`"
            };
            report.finding(format!("{name}: {shown} has {} MiB left", found.free), advice);
        }
        if found.files < 1000 {
            report.finding(
                format!("{name}: {shown} has room for {} more files", found.files),
                "remove files: a quota counts them too",
            );
        }
    }
}

/// Caches of compiled kernels: many ranks at once on a shared disk are slow, and corrupt some.
fn caches(report: &mut Report) {
    let home = variable("HOME").map(PathBuf::from);
    let default = variable("XDG_CACHE_HOME").map(PathBuf::from).or(home.map(|home| home.join(".cache")));
    let named = ["RUSHLIGHT_CUDA_CACHE", "CUDA_CACHE_PATH", "MIOPEN_USER_DB_PATH", "TRITON_CACHE_DIR", "NEO_CACHE_DIR"];
    let mut places: Vec<(String, PathBuf)> =
        named.iter().filter_map(|name| Some(((*name).to_owned(), PathBuf::from(variable(name)?)))).collect();
    if variable("RUSHLIGHT_CUDA_CACHE").is_none() {
        places.extend(default.map(|path| ("cache".to_owned(), path)));
    }
    for (name, path) in places {
        let Some(found) = file_system(&path) else { continue };
        report.fact("cache", format!("{name}: {}, {}", path.display(), found.kind));
        if found.is_shared {
            report.finding(
                format!("{name}: {} is on a shared disk ({}), where the kernel caches of many ranks meet", path.display(), found.kind),
                "export RUSHLIGHT_CUDA_CACHE (MIOPEN_USER_DB_PATH, TRITON_CACHE_DIR) to a folder under /tmp of each node",
            );
        }
    }
}

fn networks(report: &mut Report) {
    use rushlight_dist::launch::{self, Environment};
    let read = |name: &str, file: &str| {
        std::fs::read_to_string(format!("/sys/class/net/{name}/{file}")).unwrap_or_default().trim().to_owned()
    };
    let all = launch::interfaces();
    let mut names: Vec<String> = std::fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "lo")
        .collect();
    names.sort();
    for name in &names {
        let addresses: Vec<String> = all.iter().filter(|i| i.name == *name).map(|i| i.address.to_string()).collect();
        let speed = read(name, "speed").parse::<i64>().ok().filter(|speed| *speed > 0);
        let speed = speed.map_or("speed unknown".into(), |speed| format!("{} Gbit/s", speed as f64 / 1000.0));
        report.fact("network", format!("{name}: {}, {speed}, {}", read(name, "operstate"), addresses.join(" ")));
    }
    let env = Environment::current();
    match launch::choose_interface(&all, &env) {
        Ok(Some(chosen)) => {
            let speed = read(&chosen.name, "speed").parse::<i64>().unwrap_or(-1);
            let faster = names.iter().find(|other| {
                read(other, "operstate") == "up" && read(other, "speed").parse::<i64>().unwrap_or(-1) > speed.max(0)
            });
            if let (true, Some(faster)) = ((0..SLOW_LINK).contains(&speed), faster) {
                report.finding(
                    format!(
                        "ranks would talk over {} ({} Gbit/s); {faster} is faster",
                        chosen.name,
                        speed as f64 / 1000.0
                    ),
                    format!("export GLOO_SOCKET_IFNAME={faster} NCCL_SOCKET_IFNAME={faster}"),
                );
            }
        }
        Ok(None) => {}
        Err(e) => report.finding(format!("network: {e}"), "name an interface that `ip -brief address` shows"),
    }
    // Programs that try ::1 where the kernel has no IPv6 print an error (97) each time, or wait.
    let has_ipv6 = std::fs::read_to_string("/proc/net/if_inet6").is_ok_and(|text| !text.trim().is_empty());
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    report.fact("IPv6", if has_ipv6 { "on".into() } else { "off".into() });
    if !has_ipv6 && names_ipv6(&hosts, "localhost") {
        report.finding(
            "localhost has an IPv6 address in /etc/hosts, but this machine's kernel has IPv6 turned off".into(),
            "harmless noise (errno 97) of other programs; use 127.0.0.1 in --master-addr and --rdzv-endpoint",
        );
    }
    if names_ipv6(&hosts, env.hostname()) && !hosts_has_ipv4(&hosts, env.hostname()) {
        report.finding(
            format!("{} has only an IPv6 address in /etc/hosts", env.hostname()),
            "give --local-addr with the address of the fabric, or add the IPv4 address",
        );
    }
}

fn host_lines<'a>(hosts: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    hosts.lines().filter_map(move |line| {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let address = words.next()?;
        words.any(|word| word == name).then_some(address)
    })
}

/// Whether `/etc/hosts` has an IPv6 address for a name.
fn names_ipv6(hosts: &str, name: &str) -> bool {
    host_lines(hosts, name).any(|address| address.contains(':'))
}

fn hosts_has_ipv4(hosts: &str, name: &str) -> bool {
    host_lines(hosts, name).any(|address| !address.contains(':'))
}

/// MPI's and the vendors' collective libraries, by the names under which programs open them.
fn libraries(report: &mut Report) {
    let names = [
        ("MPI", &["libmpi.so.12", "libmpich.so.12", "libmpi.so.40", "libmpi_abi.so", "libmpi_cray.so.12"][..]),
        ("oneCCL", &["libccl.so.2", "libccl.so.1"][..]),
    ];
    let mut folders: Vec<PathBuf> = std::env::split_paths(&variable("LD_LIBRARY_PATH").unwrap_or_default()).collect();
    let standard = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/opt/rocm/lib",
        "/opt/cray/pe/lib64",
    ];
    folders.extend(standard.map(PathBuf::from));
    for (what, files) in names {
        let found = folders.iter().flat_map(|folder| files.iter().map(|file| folder.join(file))).find(|p| p.exists());
        let text = found.map_or("not found on the search path".into(), |path| path.display().to_string());
        report.fact("library", format!("{what}: {text}"));
    }
    if variable("SLURM_MPI_TYPE").as_deref() == Some("none") && variable("SLURM_STEP_NUM_TASKS").is_some() {
        report.fact(
            "MPI",
            "srun started the ranks without PMI (SLURM_MPI_TYPE=none): MPI_Init would see one rank each".into(),
        );
    }
}

/// GPUs that the kernel knows and the engine of their vendor cannot use.
fn drivers(report: &mut Report) {
    if let Ok(text) = std::fs::read_to_string("/proc/driver/nvidia/version") {
        report.fact("driver", text.lines().next().unwrap_or_default().to_owned());
    }
    // Vendor, engine, device file, group that may open it, and variables that hide devices.
    let vendors = [
        (
            "NVIDIA",
            "cuda",
            "/dev/nvidiactl",
            "the container must be given the GPU (--gpus all, --nv)",
            &["CUDA_VISIBLE_DEVICES"][..],
        ),
        (
            "AMD",
            "hip",
            "/dev/kfd",
            "the user must be in the groups render and video",
            &["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"],
        ),
        ("Intel", "xpu", "", "the user must be in the group render", &["ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"]),
    ];
    for (vendor, name, device, advice, hiding) in vendors {
        let hidden: Vec<String> =
            hiding.iter().filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}"))).collect();
        hidden.iter().for_each(|text| report.fact("visible devices", text.clone()));
        let is_there = if device.is_empty() { has_intel_gpu() } else { Path::new(device).exists() };
        let engine = rushlight_engines::accelerators().find(|engine| engine.name() == name);
        let why = match engine.map(|engine| engine.count()) {
            Some(Ok(count)) if count > 0 => continue,
            Some(Err(e)) => super::brief(&e),
            Some(Ok(_)) if !hidden.is_empty() => format!("{} hides it", hidden.join(", ")),
            Some(Ok(_)) => "its driver shows no device".into(),
            None => "this program was built without its engine".into(),
        };
        if is_there {
            let advice = if hidden.is_empty() { advice } else { "unset the variable, or name devices that are there" };
            report.finding(format!("this machine has an {vendor} GPU that cannot be used: {why}"), advice);
        }
    }
}

/// Whether there is a compute GPU of Intel's, not the graphics of a processor.
fn has_intel_gpu() -> bool {
    std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten().any(|entry| {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        read("vendor").trim() == "0x8086" && read("class").starts_with("0x0380")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_the_resolver_reads_them() {
        let hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost # loop\n# fe80::1 node1\n10.0.0.1 node1\n";
        assert!(names_ipv6(hosts, "localhost") && hosts_has_ipv4(hosts, "localhost"));
        assert!(!names_ipv6(hosts, "node1") && hosts_has_ipv4(hosts, "node1"));
        assert!(!names_ipv6(hosts, "node2") && !hosts_has_ipv4(hosts, "node2"));
    }

    #[test]
    fn file_systems_of_folders_that_are_not_there_are_those_above() {
        let found = file_system(Path::new("/proc/no/such/folder")).expect("a file system");
        assert!(!found.is_shared);
    }
}
