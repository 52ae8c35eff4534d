//! Ranks as processes: command line, variables, start and exit.

use crate::affinity::{Share, cpu_set};
use crate::console::{self, Stream};
use crate::failures::Failures;
use crate::job::REQUEUE_CODE;
use crate::options::Options;
use crate::output::{Redrawn, Source};
use crate::signals;
use rushlight_core::{Error, Result};
use rushlight_dist::launch::{LOCAL_ADDRESS_VARIABLE, SECRET_VARIABLE};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// A node's assignment in a round, by the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The round, counted from 0 over restarts and changes of membership.
    pub round: u64,
    /// Number of restarts after failures so far.
    pub restarts: usize,
    pub node_rank: usize,
    pub nodes: usize,
    /// The rank of this node's first process.
    pub first_rank: usize,
    pub world_size: usize,
    /// The same within the node's role.
    pub first_role_rank: usize,
    pub role_size: usize,
    pub master_addr: String,
    pub master_port: u16,
}

/// The settings common to all rounds of a run.
pub struct Job<'a> {
    pub options: &'a Options,
    pub run_id: String,
    pub local_size: usize,
    /// Whether the job is, and stays, a single rank.
    pub is_alone: bool,
    /// The secret of a job whose nodes need not derive one.
    pub secret: Option<String>,
    /// Directory of log files.
    pub log_dir: Option<PathBuf>,
    pub shares: Vec<Share>,
    /// The signal mask of the ranks.
    pub mask: libc::sigset_t,
    /// Limit of open files for the ranks: the launcher's original one.
    pub files: libc::rlimit,
    /// This node's name.
    pub host: String,
    /// With `--virtual-local-rank`: the variable that restricts the devices, and its value for each local rank.
    pub devices: Option<(&'static str, Vec<String>)>,
    pub failures: &'a Failures,
}

/// Tells a rank that its standard error, a pipe, ends at a terminal: it may redraw a progress bar.
const TERMINAL_VARIABLE: &str = "RUSHLIGHT_TERMINAL";

/// Tells a rank that its standard error is a pipe to the launcher, which copies the rank's output to the run's
/// directory once the rank has named it.
const CONSOLE_VARIABLE: &str = "RUSHLIGHT_CONSOLE";

/// A rank that was started.
#[derive(Debug)]
pub struct Worker {
    pub pid: i32,
    pub rank: usize,
    pub local_rank: usize,
    /// Its exit, once it has ended.
    pub ended: Option<Exit>,
    /// Time of the exit, or of the start.
    pub ended_at: SystemTime,
}

/// Exit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// Decodes a status of `waitpid`.
    pub fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        }
    }

    /// Whether the rank succeeded: it finished, or saved its state and requests another job.
    pub fn is_good(self) -> bool {
        matches!(self, Exit::Code(0 | REQUEUE_CODE))
    }

    /// The exit code that a shell would report.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal} ({})", signals::name(*signal)),
        }
    }
}

/// The program and its arguments, preceded by the interpreter if it needs one.
pub fn command_line(options: &Options) -> Vec<OsString> {
    let program = &options.program[0];
    let python = options.module || (!options.no_python && is_python(Path::new(program)));
    let mut line: Vec<OsString> = Vec::new();
    if python {
        line.extend([interpreter(), "-u".into()]);
        if options.serves_torch {
            line.extend(["-m".into(), "rushlight".into()]);
        }
        line.extend(options.module.then(|| "-m".into()));
        line.push(program.clone());
    } else {
        line.push(in_current_directory(program).unwrap_or_else(|| program.clone()));
    }
    line.extend(options.program[1..].iter().cloned());
    line
}

/// The Python that runs scripts.
pub fn interpreter() -> OsString {
    std::env::var_os("PYTHON_EXEC").filter(|exe| !exe.is_empty()).unwrap_or_else(|| "python3".into())
}

/// Whether a program is a Python script: by its name, or a file that is not executable and begins like one.
pub fn is_python(path: &Path) -> bool {
    if path.extension().is_some_and(|e| e == "py") {
        return true;
    }
    let executable = std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0);
    let mut head = [0u8; 128];
    let length = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let line = head[..length].split(|&byte| byte == b'\n').next().unwrap_or_default();
    !executable && line.starts_with(b"#!") && line.windows(6).any(|part| part == b"python")
}

/// `./train` for `train`, if that is a program here and not on the search path.
fn in_current_directory(program: &OsString) -> Option<OsString> {
    let path = Path::new(program);
    if path.components().count() != 1 || program.to_string_lossy().contains('/') {
        return None;
    }
    let runs = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).any(|dir| runs(&dir.join(path)));
    (!found && runs(path)).then(|| Path::new(".").join(path).into_os_string())
}

/// The variables of a rank, which are torchrun's.
fn variables(job: &Job, place: &Place, local_rank: usize) -> Vec<(&'static str, String)> {
    let share = &job.shares[local_rank];
    let mut list = vec![
        ("RANK", (place.first_rank + local_rank).to_string()),
        ("WORLD_SIZE", place.world_size.to_string()),
        ("LOCAL_RANK", if job.devices.is_some() { "0".into() } else { local_rank.to_string() }),
        ("LOCAL_WORLD_SIZE", job.local_size.to_string()),
        ("GROUP_RANK", place.node_rank.to_string()),
        ("GROUP_WORLD_SIZE", place.nodes.to_string()),
        ("ROLE_RANK", (place.first_role_rank + local_rank).to_string()),
        ("ROLE_WORLD_SIZE", place.role_size.to_string()),
        ("ROLE_NAME", job.options.role.clone()),
        ("MASTER_ADDR", place.master_addr.clone()),
        ("MASTER_PORT", place.master_port.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", place.restarts.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", job.options.max_restarts.to_string()),
        ("TORCHELASTIC_RUN_ID", job.run_id.clone()),
        // Rank 0 holds the ranks' store itself, so that it ends with them.
        ("TORCHELASTIC_USE_AGENT_STORE", "False".into()),
    ];
    if let Some((name, values)) = &job.devices {
        list.push((name, values[local_rank].clone()));
    }
    if let Some(file) = job.failures.file(place, local_rank) {
        list.push(("TORCHELASTIC_ERROR_FILE", file.to_string_lossy().into_owned()));
    }
    if let Some(address) = &job.options.local_addr {
        list.push((LOCAL_ADDRESS_VARIABLE, address.clone()));
    }
    if let Some(policy) = &job.options.elastic_batch {
        list.push((crate::options::ELASTIC_BATCH_VARIABLE, policy.clone()));
    }
    if let Some(path) = &job.options.plan {
        list.push((rushlight_dist::plan::VARIABLE, path.to_string_lossy().into_owned()));
    }
    if let Some(secret) = &job.secret {
        list.push((SECRET_VARIABLE, secret.clone()));
    }
    let user_sized = ["OMP_NUM_THREADS", "RUSHLIGHT_NUM_THREADS"].iter().any(|name| std::env::var_os(name).is_some());
    if job.local_size > 1 && !user_sized {
        list.push(("OMP_NUM_THREADS", share.threads.to_string()));
        list.push(("RUSHLIGHT_NUM_THREADS", share.threads.to_string()));
    }
    list
}

/// Starts all ranks of this node. If one cannot be started, those before it are killed.
pub fn start(job: &Job, place: &Place) -> Result<(Vec<Worker>, Vec<Source>)> {
    let (mut workers, mut sources) = (Vec::new(), Vec::new());
    for local_rank in 0..job.local_size {
        match start_one(job, place, local_rank) {
            Ok((worker, streams)) => {
                workers.push(worker);
                sources.extend(streams);
            }
            Err(e) => {
                for worker in &workers {
                    worker.kill();
                }
                return Err(e);
            }
        }
    }
    Ok((workers, sources))
}

fn start_one(job: &Job, place: &Place, local_rank: usize) -> Result<(Worker, Vec<Source>)> {
    let rank = place.first_rank + local_rank;
    let line = command_line(job.options);
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).envs(variables(job, place, local_rank)).process_group(0);
    // A terminal stops background readers; a pipe can have one reader.
    // SAFETY: queries a descriptor, open or not.
    if rank > 0 || unsafe { libc::isatty(0) } == 1 {
        command.stdin(Stdio::null());
    }
    let mut sources = Vec::new();
    for (bit, stream) in [(1, Stream::Out), (2, Stream::Err)] {
        if let Some((theirs, source)) = stream_of(job, place, local_rank, bit, stream)? {
            match stream {
                Stream::Out => command.stdout(theirs),
                Stream::Err => command.stderr(theirs),
            };
            if source.redrawn == Redrawn::Bar && stream == Stream::Err {
                command.env(TERMINAL_VARIABLE, "1").env("COLUMNS", console::columns().to_string());
            }
            if stream == Stream::Err {
                command.env(CONSOLE_VARIABLE, "1");
            }
            sources.push(source);
        }
    }
    let agent = std::process::id() as i32;
    let files = job.files;
    let (mask, cpus) = (job.mask, job.shares[local_rank].cpus.as_deref().map(cpu_set));
    // SAFETY: between fork and exec only calls that are safe there; all data was made before.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
            if libc::getppid() != agent {
                libc::_exit(1);
            }
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
            if let Some(set) = &cpus {
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    let child = command.spawn().map_err(|e| {
        let program = line[0].to_string_lossy();
        let advice = match e.kind() {
            ErrorKind::PermissionDenied if Path::new(&line[0]).is_file() => {
                format!("make it executable (chmod +x {program}), or name its interpreter first")
            }
            ErrorKind::PermissionDenied => "it is no file that may be executed".into(),
            ErrorKind::NotFound => "is it a program, and on the search path or with its folder?".into(),
            _ if e.raw_os_error() == Some(libc::EMFILE) => "raise the limit of open files: ulimit -n".into(),
            _ if e.raw_os_error() == Some(libc::EAGAIN) => "raise the limit of processes: ulimit -u".into(),
            _ if e.raw_os_error() == Some(libc::ENOEXEC) => {
                "it is neither a program nor a script that begins with #!".into()
            }
            _ => "the system refuses it".into(),
        };
        Error::io(format!("rushlight run: {program} cannot be started ({e}); {advice}"))
    })?;
    Ok((Worker { pid: child.id() as i32, rank, local_rank, ended: None, ended_at: SystemTime::now() }, sources))
}

/// A rank's stream: write end and read end. `None` if it inherits the launcher's.
fn stream_of(
    job: &Job,
    place: &Place,
    local_rank: usize,
    bit: u8,
    stream: Stream,
) -> Result<Option<(OwnedFd, Source)>> {
    let options = job.options;
    let (redirected, teed) = (options.redirects.of(local_rank) & bit != 0, options.tee.of(local_rank) & bit != 0);
    let shown = (!redirected || teed) && options.filter.as_ref().is_none_or(|filter| filter.contains(&local_rank));
    // The output of a single rank is unchanged: colours and progress bars work.
    let texts = &options.duplicates[usize::from(bit == 2)];
    if job.is_alone && shown && !teed && texts.is_empty() {
        return Ok(None);
    }
    let file = match &job.log_dir {
        Some(dir) if redirected || teed => {
            let rank = place.first_rank + local_rank;
            let dir = dir.join(format!("attempt_{}", place.round)).join(rank.to_string());
            let path = dir.join(if bit == 1 { "stdout.log" } else { "stderr.log" });
            let made = std::fs::create_dir_all(&dir).and_then(|()| File::create(&path));
            Some(made.map_err(|e| {
                Error::io(format!("rushlight run: the log file {} cannot be made ({e})", path.display()))
            })?)
        }
        _ => None,
    };
    let filtered = match &job.log_dir {
        Some(dir) if !texts.is_empty() => {
            let dir = dir.join(format!("attempt_{}", place.round));
            let path = dir.join(if bit == 1 { "filtered_stdout.log" } else { "filtered_stderr.log" });
            // All ranks of the node append whole lines to one file.
            let made =
                std::fs::create_dir_all(&dir).and_then(|()| File::options().append(true).create(true).open(&path));
            let file = made.map_err(|e| {
                Error::io(format!("rushlight run: the log file {} cannot be made ({e})", path.display()))
            })?;
            Some((file, texts.clone()))
        }
        _ => None,
    };
    let (pipe, theirs) = signals::pipe()?;
    let prefix = prefix(job, place, local_rank);
    let console = shown.then_some(stream);
    let redrawn = match shown && console::is_terminal(stream) && console::is_terminal(Stream::Err) {
        false => Redrawn::Lines,
        true if place.first_rank + local_rank == 0 => Redrawn::Bar,
        true => Redrawn::Hidden,
    };
    let rank = place.first_rank + local_rank;
    Ok(Some((theirs, Source { local_rank, rank, pipe, prefix, console, redrawn, file, filtered })))
}

/// The prefix of each line of a rank.
fn prefix(job: &Job, place: &Place, local_rank: usize) -> String {
    let rank = (place.first_rank + local_rank).to_string();
    let Some(template) = &job.options.prefix else {
        // The output of a single rank gets no prefix.
        return if job.is_alone { String::new() } else { format!("[rank{rank}]: ") };
    };
    let values = [
        ("role_name", &job.options.role),
        ("local_rank", &local_rank.to_string()),
        ("rank", &rank),
        ("hostname", &job.host),
    ];
    values.iter().fold(template.clone(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

impl Worker {
    /// Sends a signal to the rank only, not to its children: helpers would die while it saves.
    pub fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: the process is our child and not reaped.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Kills the rank and its process group.
    pub fn kill(&self) {
        if self.ended.is_none() {
            // SAFETY: the leader is not reaped, so the group's number is still its own.
            unsafe {
                libc::kill(-self.pid, libc::SIGKILL);
                libc::kill(self.pid, libc::SIGKILL);
            }
        }
    }
}

/// Records the workers that have ended, in the kernel's order, and kills the rest of their process groups. Returns
/// their indices.
pub fn reap(workers: &mut [Worker]) -> Vec<usize> {
    let mut ended = Vec::new();
    loop {
        // SAFETY: the structure is plain data; the call reports a child without reaping it.
        let pid = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_ALL, 0, &mut info, options) != 0 {
                return ended;
            }
            info.si_pid()
        };
        if pid == 0 {
            return ended;
        }
        let index = workers.iter().position(|worker| worker.pid == pid && worker.ended.is_none());
        let mut status = 0;
        // SAFETY: the child is a zombie until the second call, so the group's number is its own until then.
        unsafe {
            if index.is_some() {
                libc::kill(-pid, libc::SIGKILL);
            }
            libc::waitpid(pid, &mut status, libc::WNOHANG);
        }
        if let Some(index) = index {
            workers[index].ended = Some(Exit::from_status(status));
            workers[index].ended_at = SystemTime::now();
            ended.push(index);
        }
    }
}
