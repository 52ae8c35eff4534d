//! `rushlight run` from its command line to its exit code.

use crate::agent::{Agent, Link, free_port};
use crate::console::say;
use crate::coordinator::{self, Card, Rules};
use crate::guard::{self, Guard};
use crate::options::{self, Options};
use crate::plan::{self, Meeting, Plan};
use crate::worker::Job;
use crate::{affinity, signals};
use rushlight_core::{Error, Result};
use rushlight_dist::launch::{self, Environment, Launch, Rendezvous, SECRET_VARIABLE};
use rushlight_dist::store::{HashStore, Store, TcpStore};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The grammar of the command line, for a program with several subcommands.
pub fn command() -> clap::Command {
    options::command()
}

/// Runs a job. `arguments` are those after `run`; `myself` starts this launcher again, as `srun` does on every node:
/// the program and what comes before the arguments. Returns the exit code: that of the first rank that failed, or 128
/// and the number of the signal that ended it.
pub fn run(arguments: &[OsString], myself: &[OsString]) -> i32 {
    let words = std::iter::once(OsString::from("rushlight run")).chain(arguments.iter().cloned());
    let matches = match options::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    let result = options::read(&matches, |name| std::env::var(name).ok())
        .and_then(|options| launch_job(&options, arguments, myself));
    result.unwrap_or_else(|e| {
        say(&e.to_string().replace("rushlight run: ", ""));
        2
    })
}

fn launch_job(options: &Options, arguments: &[OsString], myself: &[OsString]) -> Result<i32> {
    let env = Environment::current();
    match plan::plan(options, &env)? {
        Plan::Superfluous => {
            say("the scheduler started several launchers on this node; the first one runs the job, this one ends");
            Ok(0)
        }
        Plan::Srun(flags) => {
            let hosts = plan::allocation_hosts(&env).unwrap_or_default();
            say(&format!("starting on the nodes of this allocation ({hosts}) by srun {}", flags.join(" ")));
            let error = Command::new("srun").args(flags).args(myself).args(arguments).exec();
            Err(Error::io(format!("srun cannot be started ({error}); give --standalone to run on this node only")))
        }
        Plan::Placed { launch, meeting } => Err(become_rank(options, &launch, &meeting)),
        Plan::Alone => guard::run(|guard| report(node(options, &env, None, guard))),
        Plan::Node(meeting) => guard::run(|guard| report(node(options, &env, Some(&meeting), guard))),
    }
}

fn report(result: Result<i32>) -> i32 {
    result.unwrap_or_else(|e| {
        say(&e.to_string().replace("rushlight run: ", ""));
        1
    })
}

/// Gives way to the program, as the rank that the scheduler has made of this process.
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
    ];
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).envs(variables.into_iter().filter_map(|(name, value)| Some((name, value?))));
    Error::io(format!("{} cannot be started ({})", line[0].to_string_lossy(), command.exec()))
}

/// The agent's process of this node.
fn node(options: &Options, env: &Environment, meeting: Option<&Meeting>, guard: &Guard) -> Result<i32> {
    if let Some(count) = affinity::widen() {
        say(&format!("the affinity mask of one core was widened to {count} processors for the ranks"));
    }
    let gpus = || match rushlight_engines::accelerator() {
        Some(engine) => engine.count(),
        None => Ok(0),
    };
    let local_size = plan::local_size(options, env, gpus)?;
    let run_id = plan::run_id(options, env);
    let given = std::env::var(SECRET_VARIABLE).ok().filter(|text| !text.is_empty());
    let secret = if meeting.is_none() && given.is_none() { Some(random_text()?) } else { None };
    let files = !options.redirects.is_empty() || !options.tee.is_empty();
    let job = Job {
        options,
        log_dir: if files { Some(log_dir(options, &run_id)) } else { None },
        run_id,
        local_size,
        is_alone: meeting.is_none() && local_size == 1,
        secret,
        shares: affinity::shares(local_size, options.binding),
        mask: guard.signals.mask_before(),
    };
    if let Some(dir) = job.log_dir.as_ref().filter(|_| options.log_dir.is_none()) {
        say(&format!("output goes to files under {}", dir.display()));
    }
    let nodes = meeting.map_or((1, 1), |meeting| meeting.nodes);
    let rules = Rules {
        nodes,
        max_restarts: options.max_restarts,
        join_timeout: options.join_timeout,
        last_call: options.last_call,
        master_addr: options.master_addr.clone(),
        master_port: options.master_port,
    };
    let mut card = Card {
        host: env.hostname().to_owned(),
        address: "127.0.0.1".into(),
        port: free_port()?,
        local_size,
        role: options.role.clone(),
        node_rank: None,
    };
    let (link, served) = match meeting {
        None => {
            let store: Arc<dyn Store> = Arc::new(HashStore::new());
            let served = Some(serve(store.clone(), rules)?);
            (Link::join(store.clone(), store, |_| Ok(()), true, card)?, served)
        }
        Some(meeting) => {
            let (store, holds) = store(meeting, options, env, &job.run_id)?;
            card.address = address(&store, meeting, options, env)?;
            card.node_rank = meeting.node_rank;
            let served = if holds { Some(serve(Arc::new(store.another()?), rules)?) } else { None };
            let watcher = store.another()?;
            let life = store.another()?;
            let link = Link::join(Arc::new(store), Arc::new(watcher), |key| life.lease(key, b""), holds, card)?;
            let (host, ports) = (&meeting.host, &meeting.ports);
            let place = if ports.len() == 1 { format!("{host}:{}", ports[0]) } else { host.clone() };
            say(&format!("joined the job at {place} with {local_size} ranks; it starts with {} nodes", count(nodes)));
            let code = Agent::new(&job, guard, link, env.hostname().to_owned()).run();
            let code = finish(code, served, guard);
            drop(life);
            return Ok(code);
        }
    };
    let code = Agent::new(&job, guard, link, env.hostname().to_owned()).run();
    Ok(finish(code, served, guard))
}

fn count((least, most): (usize, usize)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// The coordinator on a thread of its own. What is received is its end.
type Served = std::sync::mpsc::Receiver<()>;

fn serve(store: Arc<dyn Store>, rules: Rules) -> Result<Served> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("rushlight-coordinator".into()).spawn(move || {
        if let Err(e) = coordinator::serve(&*store, rules) {
            say(&format!("the coordinator ended early: {e}"));
        }
        let _ = sender.send(());
    })?;
    Ok(receiver)
}

/// Waits until the other nodes have heard the job's end from the store that lives here.
fn finish(code: i32, served: Option<Served>, guard: &Guard) -> i32 {
    while let Some(served) = &served {
        let [_, guard_died] = signals::wait_readable([guard.signals.fd(), guard.fd()], 0);
        let insists = std::iter::from_fn(|| guard.signals.next()).any(signals::asks_to_end);
        match served.recv_timeout(Duration::from_millis(20)) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if !guard_died && !insists => {}
            _ => break,
        }
    }
    code
}

/// The agents' store, and whether it lives here.
fn store(meeting: &Meeting, options: &Options, env: &Environment, run_id: &str) -> Result<(TcpStore, bool)> {
    let rendezvous = Rendezvous {
        host: meeting.host.clone(),
        ports: meeting.ports.clone(),
        job: format!("rushlight run {run_id}"),
        reason: String::new(),
    };
    let launch = meeting.launch.clone().map_or_else(|| Launch::explicit(0, 1), Ok)?;
    let (secret, _) = launch::job_secret(&launch, &rendezvous)?;
    let holds = match meeting.node_rank {
        Some(rank) => rank == 0,
        None => is_local(&meeting.host, env),
    };
    let hosted = holds.then(|| TcpStore::host(&meeting.ports, is_loopback(&meeting.host), secret.clone()));
    let (store, holds) = match hosted {
        Some(Ok(store)) => (store, true),
        // Another launcher on this host was first, unless the order says that it is us.
        Some(Err(e)) if meeting.node_rank.is_some() => return Err(e),
        _ => {
            let store = TcpStore::connect_within(&meeting.host, &meeting.ports, secret, options.join_timeout)
                .map_err(|e| Error::io(format!("the launchers cannot meet: {e}")))?;
            (store, false)
        }
    };
    store.set_timeout(Duration::from_secs(30));
    Ok((store, holds))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a host is this one.
fn is_local(host: &str, env: &Environment) -> bool {
    let own = launch::interfaces();
    launch::resolve(host, env, Duration::from_secs(10))
        .is_ok_and(|found| found.iter().any(|ip| ip.is_loopback() || own.iter().any(|i| i.address == *ip)))
}

/// The address by which other nodes reach this one.
fn address(store: &TcpStore, meeting: &Meeting, options: &Options, env: &Environment) -> Result<String> {
    if let Some(address) = &options.local_addr {
        return Ok(address.clone());
    }
    if is_loopback(&meeting.host) {
        return Ok("127.0.0.1".into());
    }
    let chosen = launch::choose_interface(&launch::interfaces(), env)?.map(|interface| interface.address);
    let on_the_way = store.local_ip().filter(|ip| !ip.is_loopback());
    Ok(chosen.or(on_the_way).map_or_else(|| env.hostname().to_owned(), |ip| ip.to_string()))
}

fn log_dir(options: &Options, run_id: &str) -> PathBuf {
    let dir = options
        .log_dir
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("rushlight-run-{}", std::process::id())));
    dir.join(run_id.replace('/', "_"))
}

pub(crate) fn random_text() -> Result<String> {
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
