//! All nodes of a job: queried through Slurm, or by ranks that a launcher has started.

use super::screen::Node;
use super::{Here, ONCE, Request, json_line, plain, print, show};
use rushlight_core::Result;
use rushlight_dist::Objects;
use rushlight_monitor::{HostProcess, Sample};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Timeout for the first answer of a job's nodes.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(json: &Json) -> Node {
    let field = |json: &Json, name: &str| json.get(name).and_then(Json::as_f64).unwrap_or(0.0);
    let process = |json: &Json| HostProcess {
        pid: field(json, "pid") as u32,
        name: json.get("name").and_then(Json::as_str).unwrap_or_default().to_owned(),
        cpu: field(json, "cpu_percent"),
        memory: field(json, "memory_bytes") as u64,
    };
    let processes = json.get("processes").and_then(Json::as_array).into_iter().flatten().map(process).collect();
    Node { sample: Sample::from_json(json), processes }
}

/// The ranks of this job sample their nodes together; the first shows them.
pub fn of_ranks(request: &Request) -> Result<()> {
    let world = rushlight_dist::init()?;
    let mut here = Here::new();
    let mut gather = |wait: Duration| -> Result<(Vec<String>, bool)> {
        std::thread::sleep(wait);
        let (sample, processes) = here.sample();
        let all = world.all_gather_object(json_line(&sample, &processes).as_bytes())?;
        let mut nodes = BTreeMap::new();
        for bytes in all {
            let line = String::from_utf8_lossy(&bytes).into_owned();
            let json: Json = serde_json::from_str(&line).unwrap_or_default();
            // Ranks of one node report the same values.
            nodes.entry(json["host"].as_str().unwrap_or_default().to_owned()).or_insert(line);
        }
        Ok((nodes.into_values().collect(), world.rank() == 0))
    };
    let parse = |lines: &[String]| -> Vec<Node> {
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).map(|json: Json| node(&json)).collect()
    };
    // The first rank decides whether to continue: the others have no terminal.
    let goes_on = |own: bool| -> Result<bool> {
        let all = world.all_gather_object(&[u8::from(own)])?;
        Ok(all.first().is_some_and(|bytes| bytes == &[1]))
    };
    if request.once || request.json || world.rank() != 0 {
        // Ranks that only answer take their sample early, and wait for the first.
        let wait = if world.rank() == 0 && !request.once { request.interval } else { ONCE.min(request.interval) };
        loop {
            let (lines, first) = gather(wait)?;
            let reads = !first
                || match request.json {
                    true => print(&lines.join("\n")),
                    false => print(&plain(&parse(&lines))),
                };
            if !goes_on(reads && !request.once)? {
                return Ok(());
            }
        }
    }
    let mut failed = None;
    let shown = show(request.interval, || {
        let gathered = gather(Duration::ZERO).and_then(|(lines, _)| goes_on(true).map(|_| lines));
        gathered.map(|lines| parse(&lines)).map_err(|e| failed = Some(e)).ok()
    });
    if let Some(e) = failed {
        return Err(e);
    }
    // The others have begun another round.
    gather(Duration::ZERO).and_then(|_| goes_on(false))?;
    shown.map_err(rushlight_core::Error::io)
}

/// A Slurm step that ends with this process.
struct Step(Child);

impl Drop for Step {
    fn drop(&mut self) {
        // srun forwards SIGTERM and ends the tasks; after SIGKILL it could not.
        let pid = i32::try_from(self.0.id()).unwrap_or(0);
        if pid > 0 && !matches!(self.0.try_wait(), Ok(Some(_))) {
            // SAFETY: the process is our child, which has not been waited for.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of nodes of a job.
fn node_count(job: &str) -> std::result::Result<u32, String> {
    let output =
        Command::new("squeue").args(["--noheader", "--format=%D", "--jobs", job]).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("--job needs Slurm, whose squeue cannot be started: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    text.trim().parse().map_err(|_| format!("Slurm does not know a running job {job} {}", why.trim()))
}

/// Starts `rushlight top --json` on every node of a job, next to the job, and shows their output.
pub fn of_job(request: &Request, job: &str, myself: &[OsString]) -> std::result::Result<(), String> {
    if !job.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.+".contains(&b)) {
        return Err(format!("{job:?} is no number of a job"));
    }
    let nodes = node_count(job)? as usize;
    let mut srun = Command::new("srun");
    srun.args(["--overlap", "--ntasks-per-node=1", "--unbuffered", "--input=none", "--quiet", "--mpi=none"]);
    srun.arg(format!("--jobid={job}")).arg(format!("--nodes={nodes}")).arg(format!("--ntasks={nodes}"));
    srun.args(myself).args(["--json", "--interval"]).arg(request.interval.as_secs_f64().to_string());
    srun.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Launched from within another job, srun would use that job's settings.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if text.starts_with("SLURM_") && text != "SLURM_CONF" {
            srun.env_remove(name);
        }
    }
    let mut child = srun.spawn().map_err(|e| format!("srun cannot be started: {e}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut step = Step(child);
    let (sender, receiver) = channel();
    if let Some(out) = out {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    let complaints = err.map(|err| std::thread::spawn(move || std::io::read_to_string(err).unwrap_or_default()));
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let ended = |step: &mut Step| {
        let status = step.0.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        format!("srun ended: {status}")
    };
    let result = if request.once || request.json {
        print_job(request, &receiver, nodes, &mut known)
    } else {
        let mut lost = false;
        let shown = show(request.interval, || {
            lost = collect(&receiver, &mut known);
            if lost {
                return None;
            }
            Some(
                known
                    .values()
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .map(|json: Json| node(&json))
                    .collect(),
            )
        });
        shown.and_then(|()| if lost { Err(ended(&mut step)) } else { Ok(()) })
    };
    drop(step);
    let said = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    result.map_err(|e| format!("{e} {}", said.trim()).trim().to_owned())
}

/// Reads the available lines. Returns whether the channel is closed.
fn collect(receiver: &Receiver<String>, known: &mut BTreeMap<String, String>) -> bool {
    let take = |line: String, known: &mut BTreeMap<String, String>| {
        if let Ok(json) = serde_json::from_str::<Json>(&line) {
            known.insert(json["host"].as_str().unwrap_or_default().to_owned(), line);
        }
    };
    // The first answer may take a moment.
    if known.is_empty() {
        match receiver.recv_timeout(Duration::from_secs(5)) {
            Ok(line) => take(line, known),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    loop {
        match receiver.try_recv() {
            Ok(line) => take(line, known),
            Err(std::sync::mpsc::TryRecvError::Empty) => return false,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return true,
        }
    }
}

/// Prints the nodes' output: lines as they arrive, or each node's first line once.
fn print_job(
    request: &Request,
    receiver: &Receiver<String>,
    nodes: usize,
    known: &mut BTreeMap<String, String>,
) -> std::result::Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = match receiver.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if !request.once => continue,
            Err(_) => return Err(format!("{} of {nodes} nodes answered", known.len())),
        };
        let Ok(json) = serde_json::from_str::<Json>(&line) else { continue };
        if !request.once {
            if !print(&line) {
                return Ok(());
            }
            continue;
        }
        known.insert(json["host"].as_str().unwrap_or_default().to_owned(), line);
        if known.len() >= nodes {
            let lines: Vec<&String> = known.values().collect();
            if request.json {
                lines.iter().for_each(|line| {
                    print(line);
                });
            } else {
                let parsed = lines.iter().filter_map(|line| serde_json::from_str(line).ok());
                print(&plain(&parsed.map(|json: Json| node(&json)).collect::<Vec<_>>()));
            }
            return Ok(());
        }
    }
}
