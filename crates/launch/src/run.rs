//! `rushlight run` from its command line to its exit code.

use crate::affinity;
use crate::agent::Agent;
use crate::console::tell_user;
use crate::coordinator::{NodeInfo, Rules};
use crate::failures::Failures;
use crate::guard::{self, Guard};
use crate::link::{Contact, free_port};
use crate::options::{self, Options};
use crate::plan::{self, Meeting, Plan};
use crate::worker::Job;
use rushlight_core::{Error, Result};
use rushlight_dist::launch::{Environment, Launch, Rendezvous, SECRET_VARIABLE};
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The grammar of the command line, for a program with several subcommands.
pub fn command() -> clap::Command {
    options::command()
}

/// Runs a job. `arguments` are those after `run`; `myself` is the program and its leading arguments that start this
/// launcher again, as `srun` does on every node. Returns the exit code: that of the first rank that failed, or 128 plus
/// the number of the signal that ended it.
pub fn run(arguments: &[OsString], myself: &[OsString]) -> i32 {
    run_with_report(arguments, myself, None)
}

/// [`run`] that writes a report to a directory: `failures.json` lists the ranks of this node that failed in the last
/// round, and `error-ROUND-RANK.json` is a rank's own error report. A successful job writes no `failures.json`.
pub fn run_with_report(arguments: &[OsString], myself: &[OsString], folder: Option<&Path>) -> i32 {
    let words = std::iter::once(OsString::from("rushlight run")).chain(arguments.iter().cloned());
    let matches = match options::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    if let Some(shell) = matches.get_one::<String>("print-completion") {
        let script = crate::completion::script(shell, &options::command(), &["torchrun", "rushlight"]);
        crate::console::write(crate::console::Stream::Out, script.as_bytes());
        return 0;
    }
    let result = options::read(&matches, |name| std::env::var(name).ok()).and_then(|mut options| {
        crate::python::prepare(&mut options)?;
        launch_job(&options, arguments, myself, folder)
    });
    result.unwrap_or_else(|e| {
        tell_user(&e.to_string().replace("rushlight run: ", ""));
        2
    })
}

fn launch_job(options: &Options, arguments: &[OsString], myself: &[OsString], folder: Option<&Path>) -> Result<i32> {
    let env = Environment::current();
    match plan::plan(options, &env)? {
        Plan::Superfluous => {
            tell_user(
                "the scheduler started several launchers on this node; the first one runs the job, this one ends",
            );
            Ok(0)
        }
        Plan::Srun(flags) => {
            let hosts = plan::allocation_hosts(&env).unwrap_or_default();
            tell_user(&format!("starting on the nodes of this allocation ({hosts}) by srun {}", flags.join(" ")));
            let error = Command::new("srun").args(flags).args(myself).args(arguments).exec();
            Err(Error::io(format!("srun cannot be started ({error}); give --standalone to run on this node only")))
        }
        Plan::Placed { launch, meeting } => Err(become_rank(options, &launch, &meeting)),
        Plan::Alone => {
            let failures = Failures::new(folder);
            guard::run(&options.signals, |guard| report(node(options, &env, None, guard, &failures)))
        }
        Plan::Node(meeting) => {
            let failures = Failures::new(folder);
            guard::run(&options.signals, |guard| report(node(options, &env, Some(&meeting), guard, &failures)))
        }
    }
}

fn report(result: Result<i32>) -> i32 {
    result.unwrap_or_else(|e| {
        tell_user(&e.to_string().replace("rushlight run: ", ""));
        1
    })
}

/// Executes the program in this process, as the rank that the scheduler has started.
fn become_rank(options: &Options, launch: &Launch, meeting: &Rendezvous) -> Error {
    let line = crate::worker::command_line(options);
    let number = |value: Option<usize>| value.map(|n| n.to_string());
    let variables = [
        ("RANK", Some(launch.rank.to_string())),
        ("WORLD_SIZE", Some(launch.world_size.to_string())),
        ("LOCAL_RANK", number(launch.local_rank)),
        ("LOCAL_WORLD_SIZE", number(launch.local_size)),
        ("GROUP_RANK", number(launch.node_rank)),
        ("GROUP_WORLD_SIZE", number(launch.nodes)),
        ("MASTER_ADDR", Some(meeting.host.clone())),
        ("MASTER_PORT", meeting.ports.first().map(u16::to_string)),
        (crate::options::ELASTIC_BATCH_VARIABLE, options.elastic_batch.clone()),
        (rushlight_dist::plan::VARIABLE, options.plan.as_ref().map(|path| path.to_string_lossy().into_owned())),
    ];
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).envs(variables.into_iter().filter_map(|(name, value)| Some((name, value?))));
    Error::io(format!("{} cannot be started ({})", line[0].to_string_lossy(), command.exec()))
}

/// The agent's process of this node.
fn node(
    options: &Options,
    env: &Environment,
    meeting: Option<&Meeting>,
    guard: &Guard,
    failures: &Failures,
) -> Result<i32> {
    if let Some(count) = affinity::widen() {
        tell_user(&format!("the affinity mask of one core was widened to {count} processors for the ranks"));
    }
    let gpus = || match rushlight_engines::accelerator() {
        Some(engine) => engine.count(),
        None => Ok(0),
    };
    let local_size = plan::local_size(options, env, gpus)?;
    let devices = if options.virtual_local_rank { Some(visible_devices(env, local_size)?) } else { None };
    let run_id = plan::run_id(options, env);
    let given = std::env::var(SECRET_VARIABLE).ok().filter(|text| !text.is_empty());
    let secret = if meeting.is_none() && given.is_none() { Some(random_text()?) } else { None };
    let duplicates = options.duplicates.iter().any(|texts| !texts.is_empty());
    let files = !options.redirects.is_empty() || !options.tee.is_empty() || duplicates;
    let job = Job {
        options,
        log_dir: if files { Some(log_dir(options, &run_id)?) } else { None },
        run_id,
        local_size,
        is_alone: meeting.is_none() && local_size == 1,
        secret,
        shares: affinity::shares(local_size, options.binding),
        mask: guard.signals.mask_before(),
        files: raise_file_limit(),
        host: env.hostname().to_owned(),
        devices,
        failures,
    };
    if let Some(dir) = job.log_dir.as_ref().filter(|_| options.log_dir.is_none()) {
        tell_user(&format!("output goes to files under {}", dir.display()));
    }
    let nodes = meeting.map_or((1, 1), |meeting| meeting.nodes);
    let rules = Rules {
        nodes,
        max_restarts: options.max_restarts,
        join_timeout: options.join_timeout,
        last_call: options.last_call,
        master_addr: options.master_addr.clone(),
        master_port: options.master_port,
        stop_time: options.stop_time.max(options.grace),
    };
    let contact = Contact {
        meeting: meeting.cloned(),
        env: env.clone(),
        run_id: job.run_id.clone(),
        rules,
        info: NodeInfo {
            launcher: random_text()?,
            host: env.hostname().to_owned(),
            address: "127.0.0.1".into(),
            port: free_port()?,
            local_size,
            role: options.role.clone(),
            node_rank: None,
        },
        local_addr: options.local_addr.clone(),
        is_host: options.is_host,
    };
    let link = contact.join(options.join_timeout)?;
    if meeting.is_some() {
        let place = contact.place();
        tell_user(&format!("joined the job at {place} with {local_size} ranks; it starts with {} nodes", count(nodes)));
    }
    let code = Agent::new(&job, guard, &contact, link, env.hostname().to_owned()).run();
    failures.remove();
    Ok(code)
}

/// The variable that restricts the devices of a process, and its value for each local rank.
fn visible_devices(env: &Environment, local_size: usize) -> Result<(&'static str, Vec<String>)> {
    let name = match rushlight_engines::accelerator().map(|engine| engine.name()) {
        Some("hip") => "HIP_VISIBLE_DEVICES",
        Some("xpu") => "ZE_AFFINITY_MASK",
        _ => "CUDA_VISIBLE_DEVICES",
    };
    let given = env.get(name).filter(|list| !list.is_empty());
    let all: Vec<String> = match given {
        Some(list) => list.split(',').map(|device| device.trim().to_owned()).collect(),
        None => (0..local_size).map(|rank| rank.to_string()).collect(),
    };
    if all.len() < local_size {
        return Err(Error::value(format!(
            "rushlight run: --virtual-local-rank gives each of {local_size} ranks a device, but {name} has {}",
            all.len()
        )));
    }
    Ok((name, all))
}

fn count((least, most): (usize, usize)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// Raises the limit of open files to the hard limit: two for each rank. Returns the previous limits.
fn raise_file_limit() -> libc::rlimit {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut before);
        libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur: before.rlim_max, ..before });
    }
    before
}

/// The directory of log files: the user's, or a new one that only this user can enter.
fn log_dir(options: &Options, run_id: &str) -> Result<PathBuf> {
    let dir = match &options.log_dir {
        Some(dir) => dir.clone(),
        None => private_directory("rushlight-run")?,
    };
    Ok(dir.join(run_id.replace('/', "_")))
}

/// A new directory for temporary files, with a name that cannot be foreseen, for this user alone.
pub(crate) fn private_directory(prefix: &str) -> Result<PathBuf> {
    let dir = std::env::temp_dir().join(format!("{prefix}-{}-{}", std::process::id(), &random_text()?[..16]));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|e| Error::io(format!("rushlight run: the folder {} cannot be made ({e})", dir.display())))?;
    Ok(dir)
}

pub(crate) fn random_text() -> Result<String> {
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn temporary_folders_are_their_owners_alone_and_cannot_be_foreseen() {
        let [first, second] = [(); 2].map(|()| private_directory("rushlight-test").unwrap());
        for folder in [&first, &second] {
            assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let random = |folder: &Path| folder.to_string_lossy().rsplit('-').next().map(str::to_owned);
        assert_ne!(random(&first), random(&second));
        assert_eq!(random(&first).unwrap().len(), 16);
        for folder in [first, second] {
            std::fs::remove_dir(folder).unwrap();
        }
    }

    #[test]
    fn log_files_without_a_place_of_the_users_are_in_such_a_folder() {
        let matches = options::command().try_get_matches_from(["run", "program"]).unwrap();
        let options = options::read(&matches, |_| None).unwrap();
        let [first, second] = [(); 2].map(|()| log_dir(&options, "job/1").unwrap());
        assert!(first.ends_with("job_1") && first != second);
        for folder in [first.parent().unwrap(), second.parent().unwrap()] {
            assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
            std::fs::remove_dir(folder).unwrap();
        }
    }
}
