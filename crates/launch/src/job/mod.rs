//! `rushlight job`: writes a batch script that runs a program by `rushlight run`, and submits it on request.

mod kubernetes;
mod machines;
mod scripts;
#[cfg(test)]
mod tests;

use crate::console;
use clap::{Arg, ArgAction, ArgMatches, Command};
use machines::{MACHINES, Machine};
use rushlight_core::{Error, Result};
use rushlight_settings::did_you_mean;
use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The exit code of a program that has saved its state and requests to be requeued.
/// (`EX_TEMPFAIL`)
pub const REQUEUE_CODE: i32 = 75;

/// The scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheduler {
    Slurm,
    Pbs,
    Flux,
    Kubernetes,
}

impl Scheduler {
    const NAMES: [(&'static str, Scheduler); 4] = [
        ("slurm", Scheduler::Slurm),
        ("pbs", Scheduler::Pbs),
        ("flux", Scheduler::Flux),
        ("kubernetes", Scheduler::Kubernetes),
    ];

    /// The command that reads a script from its standard input.
    fn submit_command(self) -> &'static [&'static str] {
        match self {
            Scheduler::Slurm => &["sbatch"],
            Scheduler::Pbs => &["qsub"],
            Scheduler::Flux => &["flux", "batch"],
            Scheduler::Kubernetes => &["kubectl", "create", "-f", "-"],
        }
    }
}

/// The inputs of a script.
#[derive(Clone, Debug)]
struct Job {
    scheduler: Scheduler,
    name: String,
    nodes: usize,
    /// Minimum nodes: with fewer the job waits for others.
    min_nodes: usize,
    gpus_per_node: usize,
    /// Processors per node to request, if the user sets them.
    cpus_per_node: Option<usize>,
    memory: Option<String>,
    /// Seconds.
    time: u64,
    account: Option<String>,
    queue: Option<String>,
    /// Seconds before the limit at which ranks get SIGUSR1.
    warning: u64,
    requeue: bool,
    stage: bool,
    /// Rushlight's wheel, which nodes get instead of the program `rushlight`.
    wheel: Option<String>,
    /// Whether the program is a Python module.
    module: bool,
    max_restarts: usize,
    modules: Vec<String>,
    variables: Vec<(String, String)>,
    image: Option<String>,
    machine: Option<&'static Machine>,
    program: Vec<String>,
}

fn command() -> Command {
    let value = |name: &'static str, placeholder: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(placeholder).help(help)
    };
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help).action(ArgAction::SetTrue);
    let machines: Vec<&str> = MACHINES.iter().map(|machine| machine.name).collect();
    Command::new("rushlight job")
        .about("Writes a batch script that runs a program on the nodes of a job")
        .override_usage("rushlight job --scheduler slurm|pbs|flux|kubernetes [OPTIONS] PROGRAM [ARGS]...")
        .arg(value("scheduler", "NAME", "Who runs the job").value_parser(Scheduler::NAMES.map(|(name, _)| name)))
        .arg(value("machine", "NAME", "Settings of a known machine").value_parser(machines))
        .after_help(
            "Examples:
  rushlight job --scheduler slurm --nodes 2 --gpus-per-node 4 --time 08:00:00 --output train.sh ./train --lr 0.1
  rushlight job --machine frontier --nodes 8 --account ABC123 --submit ./train
  rushlight job --machine alliance --wheel rushlight.whl train.py
  rushlight job --scheduler kubernetes --nodes 2 --image IMAGE ./train | kubectl create -f -

The script starts `rushlight run` on each node. The program hears of the time limit by SIGUSR1; if it saves its state and exits with 75,
the job is queued again. Nothing is installed on the nodes: the script copies one binary and the program, or one wheel.",
        )
        .arg(value("nodes", "N", "Number of nodes. Default: 1"))
        .arg(value("min-nodes", "N", "Minimum number of nodes to continue with when some are lost. Default: all"))
        .arg(value(
            "gpus-per-node",
            "N",
            "GPUs, and ranks, of each node. Default: the machine's, else 1; 0 is a job without GPUs",
        ))
        .arg(value("cpus-per-node", "N", "Processors of each node. Default: the machine's, else the scheduler's"))
        .arg(value("memory", "SIZE", "Memory of each node: 64G"))
        .arg(value("time", "[D-]HH:MM[:SS]", "Time limit. Default: 01:00:00"))
        .arg(value("account", "NAME", "Project that pays"))
        .arg(value("queue", "NAME", "Partition or queue").visible_alias("partition"))
        .arg(value("name", "NAME", "The job's name. Default: the program's"))
        .arg(value("warning", "SECONDS", "How long before the limit ranks get SIGUSR1. Default: 120"))
        .arg(value("max-restarts", "K", "Failures that are answered by a restart. Default: 3"))
        .arg(value("load", "MODULE", "Environment module to load; may be repeated").action(ArgAction::Append))
        .arg(value("env", "NAME=VALUE", "Variable of the job; may be repeated").action(ArgAction::Append))
        .arg(value("image", "IMAGE", "Container image (kubernetes)"))
        .arg(value("output", "FILE", "Where to write the script. Default: standard output"))
        .arg(flag("no-requeue", "Do not requeue the job when it requests that or loses a node"))
        .arg(flag("no-stage", "Do not copy the program to the nodes' own disks"))
        .arg(value("wheel", "FILE", "Rushlight's wheel for a Python program: it is unpacked on the nodes' own disks"))
        .arg(flag("module", "PROGRAM is a Python module").short('m'))
        .arg(flag("submit", "Submit the script as well"))
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .required(true)
                .num_args(1..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true),
        )
}

/// Writes a job's script. Returns the exit code.
pub fn job(arguments: &[OsString]) -> i32 {
    let words = std::iter::once(OsString::from("rushlight job")).chain(arguments.iter().cloned());
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    match write_job(&matches) {
        Ok(()) => 0,
        Err(e) => {
            console::write(console::Stream::Err, format!("rushlight job: {e}\n").as_bytes());
            2
        }
    }
}

fn write_job(matches: &ArgMatches) -> Result<()> {
    let job = read(matches)?;
    let script = job.script()?;
    let output = matches.get_one::<String>("output").map(PathBuf::from);
    match &output {
        Some(path) => write_script(path, &script, job.scheduler == Scheduler::Kubernetes)
            .map_err(|e| Error::io(format!("the script {} cannot be written ({e})", path.display())))?,
        None if !matches.get_flag("submit") => console::write(console::Stream::Out, script.as_bytes()),
        None => {}
    }
    if matches.get_flag("submit") { submit(job.scheduler, &script) } else { Ok(()) }
}

/// Writes a script. One that contains the job's secret is readable by its owner alone, also if the file existed.
fn write_script(path: &Path, script: &str, secret: bool) -> std::io::Result<()> {
    let mode = if secret { 0o600 } else { 0o666 };
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    if secret {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(script.as_bytes())
}

fn submit(scheduler: Scheduler, script: &str) -> Result<()> {
    let line = scheduler.submit_command();
    let failed = |what: String| Error::io(format!("{} {what}; the script was not submitted", line.join(" ")));
    let mut child = std::process::Command::new(line[0])
        .args(&line[1..])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("cannot be started ({e})")))?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(script.as_bytes()));
    let status = child.wait()?;
    match (status.success(), written) {
        (true, Ok(())) => Ok(()),
        (true, Err(e)) => Err(failed(format!("did not take the script ({e})"))),
        (false, _) => Err(failed(format!("said no ({status})"))),
    }
}

fn read(matches: &ArgMatches) -> Result<Job> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let number = |name: &str, default: usize| -> Result<usize> {
        text(name).map_or(Ok(default), |v| {
            v.parse().map_err(|_| Error::value(format!("--{name} {v} should be a number that is not negative")))
        })
    };
    let list = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let program: Vec<String> = list("program");
    if program[0].starts_with('-') {
        let advice = did_you_mean(&program[0], &command().render_long_help().to_string());
        return Err(Error::value(format!("there is no option {}{advice}; see rushlight job --help", program[0])));
    }
    let machine = text("machine").and_then(|name| MACHINES.iter().find(|machine| machine.name == name));
    let named = text("scheduler").and_then(|name| Scheduler::NAMES.iter().find(|(n, _)| *n == name).map(|(_, s)| *s));
    let scheduler = match (named, machine) {
        (Some(scheduler), Some(machine)) if scheduler != machine.scheduler => {
            return Err(Error::value(format!(
                "the machine {} does not run this scheduler: leave out --scheduler",
                machine.name
            )));
        }
        (Some(scheduler), _) => scheduler,
        (None, Some(machine)) => machine.scheduler,
        (None, None) => return Err(Error::value("give --scheduler slurm|pbs|flux|kubernetes, or a --machine")),
    };
    let default_name =
        PathBuf::from(&program[0]).file_stem().map_or("job".into(), |n| n.to_string_lossy().into_owned());
    let name = text("name").unwrap_or(default_name);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(Error::value(format!(
            "the job's name {name:?} should have letters, digits, '-', '_' and '.' only: give --name"
        )));
    }
    let mut variables: Vec<(String, String)> =
        machine.map_or(&[][..], |m| m.variables).iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    for item in list("env") {
        let (key, value) = item
            .split_once('=')
            .filter(|(key, _)| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
            .ok_or_else(|| Error::value(format!("--env {item} should be NAME=VALUE")))?;
        variables.retain(|(other, _)| other != key);
        variables.push((key.into(), value.into()));
    }
    let nodes = number("nodes", 1)?;
    if nodes == 0 {
        return Err(Error::value("--nodes 0 leaves nothing to run on"));
    }
    let job = Job {
        scheduler,
        name,
        nodes,
        min_nodes: number("min-nodes", nodes)?,
        gpus_per_node: number("gpus-per-node", machine.map_or(1, |m| m.gpus))?,
        cpus_per_node: Some(number("cpus-per-node", 0)?).filter(|&n| n > 0),
        memory: text("memory"),
        time: time(&text("time").unwrap_or_else(|| "01:00:00".into()))?,
        account: text("account"),
        queue: text("queue").or(machine.and_then(|m| m.queue).map(str::to_owned)),
        warning: number("warning", 120)? as u64,
        requeue: !matches.get_flag("no-requeue"),
        stage: !matches.get_flag("no-stage"),
        wheel: text("wheel"),
        module: matches.get_flag("module"),
        max_restarts: number("max-restarts", 3)?,
        modules: list("load"),
        variables,
        image: text("image"),
        machine,
        program,
    };
    if job.min_nodes == 0 || job.min_nodes > job.nodes {
        return Err(Error::value(format!(
            "--min-nodes {} should be between 1 and the {} of --nodes",
            job.min_nodes, job.nodes
        )));
    }
    if job.wheel.is_some() && job.scheduler == Scheduler::Kubernetes {
        return Err(Error::value("--wheel: on Kubernetes the image carries the program and the wheel"));
    }
    if job.warning >= job.time {
        return Err(Error::value(format!("--warning {} leaves no time of the {} s of --time", job.warning, job.time)));
    }
    for value in [&job.account, &job.queue, &job.memory].into_iter().flatten() {
        if value.contains(char::is_whitespace) || value.contains(char::is_control) {
            return Err(Error::value(format!("{value:?} cannot be used in a directive: it contains spaces")));
        }
    }
    Ok(job)
}

/// Seconds of `[D-]HH:MM[:SS]`, or of a number of minutes.
fn time(text: &str) -> Result<u64> {
    let wrong = || Error::value(format!("--time {text} should look like 01:30:00, 2-00:00 or 90 (minutes)"));
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().map_err(|_| wrong())?, rest),
        None => (0, text),
    };
    let parts: Vec<u64> = rest.split(':').map(|p| p.parse().map_err(|_| wrong())).collect::<Result<_>>()?;
    let seconds = match parts[..] {
        [minutes] if days == 0 => minutes.checked_mul(60),
        [hours, minutes] if minutes < 60 => hours.checked_mul(3600).map(|s| s + 60 * minutes),
        [hours, minutes, seconds] if minutes < 60 && seconds < 60 => {
            hours.checked_mul(3600).map(|s| s + 60 * minutes + seconds)
        }
        _ => None,
    };
    let total = seconds.and_then(|s| days.checked_mul(86400)?.checked_add(s));
    total.filter(|&s| s > 0).ok_or_else(wrong)
}

impl Job {
    fn script(&self) -> Result<String> {
        match self.scheduler {
            Scheduler::Slurm => Ok(self.slurm()),
            Scheduler::Pbs => Ok(self.pbs()),
            Scheduler::Flux => Ok(self.flux()),
            Scheduler::Kubernetes => self.kubernetes(),
        }
    }
}
