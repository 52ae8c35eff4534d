//! Scripts of `rushlight job`, run.

use crate::support::{Folder, children, kill, until};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rushlight");

/// Path of a program on the search path, or of one that `scripts/launchers` has installed.
fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/launchers/mpich/bin");
    std::env::split_paths(&path)
        .chain([installed])
        .flat_map(|dir| names.iter().map(move |name| dir.join(name)))
        .find(|file| file.exists())
}

fn executable(folder: &Folder, name: &str, text: &str) {
    let path = folder.path(name);
    std::fs::write(&path, text).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

/// A process group that is killed when dropped.
struct Family(i32);

impl Drop for Family {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0)]).stderr(Stdio::null()).status();
    }
}

/// PBS is not available: the test sets its variables, uses a real `mpiexec`, and a `qsub` that records its arguments.
/// Hydra's exit code after a signal is 0 whatever its processes return.
#[test]
fn a_pbs_script_warns_the_ranks_and_submits_itself_again() {
    let Some(hydra) = find(&["mpiexec.mpich", "mpiexec.hydra"]) else {
        assert!(std::env::var_os("CI").is_none(), "mpiexec of MPICH is missing: scripts/launchers installs it");
        return eprintln!("skipped: there is no mpiexec of MPICH");
    };
    let folder = Folder::new("pbs");
    std::fs::create_dir(folder.path("bin")).expect("a folder");
    std::os::unix::fs::symlink(PROGRAM, folder.path("bin/rushlight")).expect("a link");
    executable(&folder, "bin/mpiexec", &format!("#!/bin/sh\nexec {} \"$@\"\n", hydra.display()));
    executable(&folder, "bin/qsub", "#!/bin/sh\necho \"qsub $*\" >> \"$PBS_O_WORKDIR/notes\"\n");
    executable(
        &folder,
        "prog.sh",
        "#!/bin/bash\ntrap 'echo rank $RANK saves; exit 75' USR1\ntouch ready$RANK\nwhile :; do sleep 0.05; done\n",
    );
    // Hydra reads the file, too.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("this host's name");
    std::fs::write(folder.path("nodes"), host.repeat(2)).expect("a file");
    let search = format!("{}:{}", folder.path("bin").display(), std::env::var("PATH").expect("a search path"));
    let made = Command::new(PROGRAM)
        .args(["job", "--scheduler", "pbs", "--gpus-per-node=2", "--output=job.pbs", "./prog.sh"])
        .current_dir(&folder.0)
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    let mut job = Command::new("bash");
    job.arg("job.pbs").current_dir(&folder.0).env("PATH", search).env("PBS_O_WORKDIR", &folder.0);
    job.env("PBS_NODEFILE", folder.path("nodes")).env("PBS_JOBID", format!("{}.test", std::process::id()));
    for (name, _) in std::env::vars() {
        if ["SLURM_", "PMI_", "OMPI_", "PET_", "TORCHELASTIC_"].iter().any(|prefix| name.starts_with(prefix)) {
            job.env_remove(name);
        }
    }
    let job =
        job.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
    let pid = job.id() as i32;
    let _family = Family(pid);
    let waiting = std::thread::spawn(move || job.wait_with_output().expect("its output"));
    let ready = || ["ready0", "ready1"].iter().all(|name| folder.path(name).exists());
    until("the ranks start", || ready() || waiting.is_finished(), String::new);
    // Sends the signal that `timeout` would send.
    children(pid).into_iter().for_each(|timeout| kill(timeout, "USR1"));
    until("the job ends", || waiting.is_finished(), String::new);
    let output = waiting.join().expect("its output");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("rank 0 saves") && text.contains("rank 1 saves"), "{text}");
    let notes = std::fs::read_to_string(folder.path("notes")).unwrap_or_default();
    assert_eq!(notes, "qsub job.pbs\n", "{text}");
    let left: Vec<_> = std::fs::read_dir(&folder.0).expect("the folder").flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".code")), "{left:?}");
}
