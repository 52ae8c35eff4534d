//! The command line of `rushlight run`: torchrun's options, with hyphens or underscores, and its PET_ variables.

use clap::{Arg, ArgAction, ArgMatches, Command};
use rushlight_core::{Error, Result};
use rushlight_dist::plan::Configuration;
use rushlight_settings::did_you_mean;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum ranks per node, so that a typo does not fill the process table.
const MAX_RANKS: usize = 4096;

/// The variable that passes `--elastic-batch` on to the ranks.
pub const ELASTIC_BATCH_VARIABLE: &str = "RUSHLIGHT_ELASTIC_BATCH";

/// Number of ranks per node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nproc {
    /// A number.
    Count(usize),
    /// One for each GPU.
    Gpu,
    /// One for each processor.
    Cpu,
    /// One for each GPU, or for each processor without GPUs.
    Auto,
}

/// Which of standard output (1) and standard error (2) an option applies to, for each local rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    all: u8,
    some: BTreeMap<usize, u8>,
}

impl Streams {
    /// The streams of a local rank, as bits.
    pub fn of(&self, local_rank: usize) -> u8 {
        self.some.get(&local_rank).copied().unwrap_or(self.all)
    }

    /// Whether no stream of any rank is selected.
    pub fn is_empty(&self) -> bool {
        self.all == 0 && self.some.values().all(|&bits| bits == 0)
    }

    /// Both streams of all ranks.
    pub fn both() -> Self {
        Self { all: 3, some: BTreeMap::new() }
    }

    fn parse(option: &str, text: &str) -> Result<Self> {
        let wrong = || {
            Error::value(format!(
                "rushlight run: --{option} {text} should be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or by local rank: 0:1,1:3"
            ))
        };
        let bits = |text: &str| text.trim().parse::<u8>().ok().filter(|&bits| bits < 4).ok_or_else(wrong);
        let mut streams = Self::default();
        if !text.contains(':') {
            streams.all = bits(text)?;
            return Ok(streams);
        }
        for item in text.split(',') {
            let (rank, value) = item.split_once(':').ok_or_else(wrong)?;
            streams.some.insert(rank.trim().parse().map_err(|_| wrong())?, bits(value)?);
        }
        Ok(streams)
    }
}

/// How ranks are bound to processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Each rank to the cores of one NUMA node, or of several where there are fewer ranks than nodes.
    Node,
    /// Each rank to all NUMA nodes of one socket.
    Socket,
    /// Each rank to cores of its NUMA node that no other rank has.
    Exclusive,
    /// Each rank to cores of its NUMA node that share a last-level cache.
    CoreComplex,
    /// Not at all.
    None,
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub nproc: Option<Nproc>,
    /// Minimum and maximum nodes.
    pub nnodes: Option<(usize, usize)>,
    pub node_rank: Option<usize>,
    pub standalone: bool,
    /// Whether `--rdzv-backend` requests a fixed order of nodes.
    pub fixed_order: bool,
    pub endpoint: Option<(String, Option<u16>)>,
    pub run_id: Option<String>,
    /// Timeout for the minimum number of nodes.
    pub join_timeout: Duration,
    /// How long to wait for more than the minimum.
    pub last_call: Duration,
    pub master_addr: Option<String>,
    pub master_port: Option<u16>,
    /// The address at which others reach this node.
    pub local_addr: Option<String>,
    pub max_restarts: usize,
    /// What a run does with its batch and its learning rate when the world changes: `keep` or `scale`.
    pub elastic_batch: Option<String>,
    /// A file of `rushlight plan --write`.
    pub plan: Option<PathBuf>,
    pub monitor_interval: Duration,
    pub role: String,
    pub log_dir: Option<PathBuf>,
    pub redirects: Streams,
    pub tee: Streams,
    /// Local ranks whose output is shown; `None` means all.
    pub filter: Option<BTreeSet<usize>>,
    /// The prefix of output lines, with macros; `None` means the default.
    pub prefix: Option<String>,
    /// Lines that contain one of these texts are also written to a separate file: for standard output, for standard
    /// error.
    pub duplicates: [Vec<String>; 2],
    pub binding: Binding,
    /// How long ranks may take to end after a forwarded signal.
    pub grace: Duration,
    /// How long ranks may take to end after another has failed: they may hang in a collective that cannot end.
    pub stop_time: Duration,
    /// Signals that are forwarded to the ranks.
    pub signals: Vec<i32>,
    /// Whether each rank sees only its own device, as number 0.
    pub virtual_local_rank: bool,
    /// Whether this node hosts the rendezvous, if the user sets it.
    pub is_host: Option<bool>,
    /// Destination of the job's exit code, written by the launcher that holds the rendezvous.
    pub exit_code_file: Option<PathBuf>,
    pub module: bool,
    pub no_python: bool,
    /// Whether Python programs run under `python -m rushlight`, which serves `import torch`.
    pub serves_torch: bool,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

/// Options with a value: name, torchrun's other spelling, placeholder, help. Each has a PET_ variable too.
const VALUES: &[(&str, &str, &str, &str)] = &[
    (
        "nproc-per-node",
        "nproc_per_node",
        "N|gpu|cpu|auto",
        "Ranks on this node. Default: 1; in a Slurm allocation one for each GPU",
    ),
    ("nnodes", "nnodes", "N|MIN:MAX", "Nodes of the job. Default: 1, or all nodes of the allocation"),
    ("node-rank", "node_rank", "R", "This node, counted from 0, where the order is fixed"),
    ("rdzv-backend", "rdzv_backend", "static|c10d", "static: --node-rank gives the order. c10d: nodes come and go"),
    ("rdzv-endpoint", "rdzv_endpoint", "HOST[:PORT]", "Where the launchers of all nodes meet"),
    ("rdzv-id", "rdzv_id", "ID", "The job's name, the same on all nodes"),
    (
        "rdzv-conf",
        "rdzv_conf",
        "KEY=VALUE,…",
        "join_timeout: seconds in which the fewest nodes must come, at the start or after a loss (600); last_call_timeout: how long more are \
         waited for at the start (30); is_host: whether this launcher holds the rendezvous",
    ),
    ("master-addr", "master_addr", "HOST", "Where rank 0 listens. Default: found by the launchers"),
    ("master-port", "master_port", "PORT", "Port on which rank 0 listens. Default: a free one"),
    ("local-addr", "local_addr", "HOST", "The address by which other nodes reach this one"),
    ("max-restarts", "max_restarts", "K", "How many failures are answered by a restart. Default: 0"),
    (
        "elastic-batch",
        "elastic_batch",
        "keep|scale",
        "When the number of ranks changes, a Trainer's step keeps its samples and its learning rate (keep), or each rank its batch and the \
         learning rate is scaled with the ranks (scale). Programs read RUSHLIGHT_ELASTIC_BATCH. Default: neither changes what a rank does",
    ),
    (
        "plan",
        "plan",
        "FILE",
        "A configuration that rushlight plan --write has made: the Trainer and deepspeed.initialize follow it. Programs read its name from \
         RUSHLIGHT_PLAN",
    ),
    (
        "monitor-interval",
        "monitor_interval",
        "S",
        "Longest time between two looks at the ranks, which also report themselves. Default: 1",
    ),
    ("role", "role", "NAME", "Name of these ranks in ROLE_NAME. Default: default"),
    ("log-dir", "log_dir", "DIR", "Where files of output go. Alone, it means --tee 3"),
    ("redirects", "redirects", "0-3|RANK:0-3,…", "Streams that go to files only: 1 stdout, 2 stderr, 3 both"),
    ("tee", "tee", "0-3|RANK:0-3,…", "Streams that go to files as well"),
    ("local-ranks-filter", "local_ranks_filter", "R,R,…", "Local ranks whose output is shown. Default: all"),
    (
        "log-line-prefix-template",
        "log_line_prefix_template",
        "TEXT",
        "Prefix of each line: ${rank}, ${local_rank}, ${role_name}, ${hostname}. Default: '[rank${rank}]: '",
    ),
    (
        "duplicate-stdout-filters",
        "duplicate_stdout_filters",
        "TEXT,…",
        "Lines with one of these texts also go to filtered_stdout.log of --log-dir; a comma in a text is written twice",
    ),
    ("duplicate-stderr-filters", "duplicate_stderr_filters", "TEXT,…", "The same for filtered_stderr.log"),
    (
        "numa-binding",
        "numa_binding",
        "node|socket|exclusive|core-complex|none",
        "Processors of a rank, near its GPU where it has one: those of a NUMA node, of a socket, a share of a NUMA node, those of one cache. \
         Default: node",
    ),
    (
        "signals-to-handle",
        "signals_to_handle",
        "NAME,…",
        "Signals that are forwarded to the ranks. Default: SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
    ),
    (
        "shutdown-timeout",
        "shutdown_timeout",
        "S",
        "Time for ranks to end before they are killed. Default: 30 after a forwarded signal, 5 after another rank's failure",
    ),
    (
        "exit-code-file",
        "exit_code_file",
        "FILE",
        "Where the launcher that holds the rendezvous writes the job's exit code. srun itself returns the worst task's code, including a lost one's",
    ),
    ("event-log-handler", "event_log_handler", "null", "Accepted for torchrun's sake; only null"),
    ("logs-specs", "logs_specs", "default", "Accepted for torchrun's sake; only default"),
    ("start-method", "start_method", "NAME", "Accepted for torchrun's sake: ranks are programs of their own"),
];

/// Options that also have a letter.
const LETTERS: &[(&str, char)] = &[("redirects", 'r'), ("tee", 't')];

/// The command line's grammar.
pub fn command() -> Command {
    let mut command = Command::new("run")
        .about("Starts the ranks of a job on this node, and together with others on all nodes")
        .override_usage("rushlight run [OPTIONS] [-m] PROGRAM [ARGS]...")
        .after_help(
            "Examples:
  rushlight run --nproc-per-node gpu train.py --lr 0.1          one rank for each GPU of this machine
  rushlight run --nproc-per-node 4 --max-restarts 3 ./train     a failure is answered by a restart, three times
  rushlight run --nnodes 2 --rdzv-endpoint node1:29400 ./train  the same line on each of two nodes
  rushlight run --nnodes 1:4 --rdzv-endpoint node1:29400 ./t    elastic: one to four nodes, which may come and go
  srun --ntasks-per-node=1 rushlight run ./train                in a Slurm allocation: nodes and GPUs are found
  rushlight run --log-dir logs --redirects 3 -m package.train   output in files, one folder for each rank

A .py file, or -m MODULE, runs under python3 (or $PYTHON_EXEC); anything else is executed. Options may be spelled with underscores, and
set by variables: PET_NNODES for --nnodes.

Exit code: that of the first rank that failed, 128 and the signal's number if a signal ended it. Ranks that exit with 75 have saved their
state and ask for another job: that is no failure, and the launcher's exit code is 75 too. If the launcher that holds the rendezvous is lost,
the others stop their ranks and join again when it is back; a launcher on the same host takes its place.",
        );
    for &(name, other, value, help) in VALUES {
        // The prefix of a line may begin with a hyphen.
        let is_text = name == "log-line-prefix-template";
        let mut arg = Arg::new(name).long(name).value_name(value).help(help).allow_hyphen_values(is_text);
        if let Some(&(_, letter)) = LETTERS.iter().find(|(option, _)| *option == name) {
            arg = arg.short(letter);
        }
        if other != name {
            arg = arg.alias(other);
        }
        if name == "shutdown-timeout" {
            arg = arg.aliases(["grace-period", "grace_period"]);
        }
        command = command.arg(arg);
    }
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help).action(ArgAction::SetTrue);
    command
        .arg(flag("standalone", "One node; needs no address"))
        .arg(flag("module", "PROGRAM is a Python module").short('m'))
        .arg(flag("no-python", "Execute PROGRAM even if it is a .py file").alias("no_python"))
        .arg(
            flag("virtual-local-rank", "LOCAL_RANK is 0 for all, and each rank sees its own GPU only")
                .alias("virtual_local_rank"),
        )
        .arg(
            flag(
                "run-path",
                "Accepted for compatibility with torchrun: a script always runs in a separate interpreter",
            )
            .alias("run_path"),
        )
        .arg(
            Arg::new("print-completion")
                .long("print-completion")
                .alias("print_completion")
                .value_name("bash|zsh|tcsh")
                .value_parser(crate::completion::SHELLS)
                .help("Print a completion script for a shell, and end"),
        )
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .help("The program and its arguments")
                .required_unless_present("print-completion")
                .num_args(1..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(clap::value_parser!(OsString)),
        )
}

/// Reads a matched command line. `env` gives the PET_ variables.
pub fn read(matches: &ArgMatches, env: impl Fn(&str) -> Option<String>) -> Result<Options> {
    let text = |name: &str| -> Option<String> {
        let given = matches.get_one::<String>(name).cloned();
        given.or_else(|| env(&format!("PET_{}", name.replace('-', "_").to_uppercase())).filter(|v| !v.is_empty()))
    };
    let number = |name: &str| -> Result<Option<usize>> {
        text(name)
            .map(|v| {
                v.parse().map_err(|_| {
                    Error::value(format!("rushlight run: --{name} {v} should be a number that is not negative"))
                })
            })
            .transpose()
    };
    let seconds = |name: &str, default: f64| -> Result<Duration> {
        text(name).map_or(Ok(Duration::from_secs_f64(default)), |v| duration(&format!("--{name}"), &v))
    };
    let flag = |name: &str| {
        let variable = format!("PET_{}", name.replace('-', "_").to_uppercase());
        matches.get_flag(name) || env(&variable).is_some_and(|v| v == "1" || v.eq_ignore_ascii_case("true"))
    };
    for (name, given) in [("start-method", text("start-method").is_some()), ("run-path", flag("run-path"))] {
        if given {
            crate::console::tell_user(&format!("--{name} has no effect: ranks are programs of their own"));
        }
    }
    for (name, only) in [("event-log-handler", "null"), ("logs-specs", "default")] {
        if let Some(given) = text(name).filter(|given| given != only) {
            return Err(Error::value(format!(
                "rushlight run: --{name} {given} names a plugin of PyTorch's, which this launcher does not load: leave it out"
            )));
        }
    }
    let shutdown = text("shutdown-timeout").or_else(|| env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT").filter(|v| !v.is_empty()));
    let shutdown = shutdown.map(|v| duration("--shutdown-timeout", &v)).transpose()?;
    let conf = conf(text("rdzv-conf").as_deref().unwrap_or(""))?;
    let port = match number("master-port")? {
        None => None,
        Some(port) => Some(u16::try_from(port).ok().filter(|&p| p > 0).ok_or_else(|| {
            Error::value(format!("rushlight run: --master-port {port} should be between 1 and 65535"))
        })?),
    };
    let options = Options {
        nproc: text("nproc-per-node").map(|v| nproc(&v)).transpose()?,
        nnodes: text("nnodes").map(|v| nnodes(&v)).transpose()?,
        node_rank: number("node-rank")?,
        standalone: flag("standalone"),
        fixed_order: backend(text("rdzv-backend").as_deref())?,
        endpoint: text("rdzv-endpoint").map(|v| endpoint(&v)).transpose()?,
        run_id: text("rdzv-id").filter(|id| id != "none"),
        join_timeout: conf.join,
        last_call: conf.last_call,
        master_addr: text("master-addr"),
        master_port: port,
        local_addr: text("local-addr"),
        max_restarts: number("max-restarts")?.unwrap_or(0),
        elastic_batch: text("elastic-batch").map(elastic_batch).transpose()?,
        plan: text("plan").map(plan).transpose()?,
        monitor_interval: seconds("monitor-interval", 1.0)?,
        role: text("role").unwrap_or_else(|| "default".into()),
        log_dir: text("log-dir").map(PathBuf::from),
        redirects: text("redirects").map_or(Ok(Streams::default()), |v| Streams::parse("redirects", &v))?,
        tee: text("tee").map_or(Ok(Streams::default()), |v| Streams::parse("tee", &v))?,
        filter: text("local-ranks-filter").map(|v| filter(&v)).transpose()?.flatten(),
        prefix: text("log-line-prefix-template").or_else(|| env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")),
        duplicates: ["duplicate-stdout-filters", "duplicate-stderr-filters"]
            .map(|name| text(name).map_or_else(Vec::new, |v| filters(&v))),
        binding: binding(text("numa-binding").as_deref())?,
        grace: shutdown.unwrap_or(Duration::from_secs(30)),
        stop_time: shutdown.unwrap_or(Duration::from_secs(5)),
        signals: text("signals-to-handle").map_or(Ok(crate::signals::FORWARDED.to_vec()), |v| signals(&v))?,
        virtual_local_rank: flag("virtual-local-rank"),
        is_host: conf.is_host,
        exit_code_file: text("exit-code-file").map(PathBuf::from),
        module: matches.get_flag("module"),
        no_python: flag("no-python"),
        serves_torch: false,
        program: matches.get_many::<OsString>("program").into_iter().flatten().cloned().collect(),
    };
    check(options)
}

fn check(mut options: Options) -> Result<Options> {
    let program = options.program[0].to_string_lossy();
    if program.starts_with('-') {
        let advice = did_you_mean(&program, &command().render_long_help().to_string());
        return Err(Error::value(format!(
            "rushlight run: there is no option {program}{advice}; see rushlight run --help"
        )));
    }
    if options.module && options.no_python {
        return Err(Error::value("rushlight run: -m runs a Python module, so --no-python cannot be given with it"));
    }
    if options.standalone {
        if options.nnodes.is_some_and(|(_, most)| most > 1) {
            return Err(Error::value("rushlight run: --standalone means one node, but --nnodes says more"));
        }
        options.nnodes = Some((1, 1));
        options.endpoint = None;
    }
    if let (Some((_, most)), Some(rank)) = (options.nnodes, options.node_rank)
        && rank >= most
    {
        return Err(Error::value(format!(
            "rushlight run: --node-rank {rank} of {most} nodes: ranks count from 0, so the last is {}",
            most - 1
        )));
    }
    if options.duplicates.iter().any(|texts| !texts.is_empty()) && options.log_dir.is_none() {
        return Err(Error::value(
            "rushlight run: --duplicate-stdout-filters and --duplicate-stderr-filters write to files: give --log-dir",
        ));
    }
    if options.log_dir.is_some() && options.redirects.is_empty() && options.tee.is_empty() {
        options.tee = Streams::both();
    }
    Ok(options)
}

fn duration(option: &str, text: &str) -> Result<Duration> {
    let seconds = text.trim().parse::<f64>().ok();
    seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| {
        Error::value(format!("rushlight run: {option} {text} should be a number of seconds that is not negative"))
    })
}

fn nproc(text: &str) -> Result<Nproc> {
    Ok(match text {
        "gpu" | "cuda" | "xpu" => Nproc::Gpu,
        "cpu" => Nproc::Cpu,
        "auto" => Nproc::Auto,
        _ => Nproc::Count(text.parse().ok().filter(|&n| (1..=MAX_RANKS).contains(&n)).ok_or_else(|| {
            Error::value(format!(
                "rushlight run: --nproc-per-node {text} should be a number of ranks from 1 to {MAX_RANKS}, gpu, cpu or auto"
            ))
        })?),
    })
}

fn elastic_batch(text: String) -> Result<String> {
    match text.as_str() {
        "keep" | "scale" => Ok(text),
        _ => Err(Error::value(format!(
            "rushlight run: --elastic-batch {text} should be keep (a step's samples) or scale (the learning rate)"
        ))),
    }
}

/// A plan's file, by its whole path: ranks may start elsewhere. A file that is no plan is an error here, not on each
/// rank.
fn plan(text: String) -> Result<PathBuf> {
    let wrong = |e: Error| e.within("rushlight run: --plan");
    Configuration::load(&text).map_err(wrong)?;
    std::fs::canonicalize(&text).map_err(|e| wrong(Error::io(format!("{text}: {e}"))))
}

fn nnodes(text: &str) -> Result<(usize, usize)> {
    let (least, most) = text.split_once(':').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if 0 < least && least <= most => Ok((least, most)),
        _ => Err(Error::value(format!(
            "rushlight run: --nnodes {text} should be a number of nodes from 1 on, or the fewest and the most: 2:4"
        ))),
    }
}

/// Whether the backend's name requests a fixed order.
fn backend(name: Option<&str>) -> Result<bool> {
    match name {
        None | Some("c10d" | "tcp") => Ok(false),
        Some("static") => Ok(true),
        Some(other) => Err(Error::value(format!(
            "rushlight run: --rdzv-backend {other} is not offered: use c10d, which needs no server besides the launchers, or static"
        ))),
    }
}

fn endpoint(text: &str) -> Result<(String, Option<u16>)> {
    let wrong = || Error::value(format!("rushlight run: --rdzv-endpoint {text} should be HOST or HOST:PORT"));
    // An IPv6 address contains colons, so its port follows brackets.
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':'))
        }
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(wrong());
    }
    // Port 0 means any port, as in torchrun.
    let port = port.map(|p| p.parse::<u16>().map_err(|_| wrong())).transpose()?.filter(|&p| p > 0);
    Ok((host.to_owned(), port))
}

fn filter(text: &str) -> Result<Option<BTreeSet<usize>>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let ranks: std::result::Result<BTreeSet<usize>, _> = text.split(',').map(|r| r.trim().parse()).collect();
    ranks.map(Some).map_err(|_| {
        Error::value(format!("rushlight run: --local-ranks-filter {text} should be local ranks with commas: 0,3"))
    })
}

fn binding(text: Option<&str>) -> Result<Binding> {
    match text {
        None | Some("node") => Ok(Binding::Node),
        Some("socket") => Ok(Binding::Socket),
        Some("exclusive") => Ok(Binding::Exclusive),
        Some("core-complex") => Ok(Binding::CoreComplex),
        Some("none") => Ok(Binding::None),
        Some(other) => Err(Error::value(format!(
            "rushlight run: --numa-binding {other} is not offered: use node, socket, exclusive, core-complex or none"
        ))),
    }
}

/// Texts with commas between them; a comma in a text is written twice.
fn filters(text: &str) -> Vec<String> {
    // No text contains this character: it would end a command line.
    let texts = text.replace(",,", "\0");
    texts.split(',').map(|part| part.replace('\0', ",")).filter(|part| !part.is_empty()).collect()
}

fn signals(text: &str) -> Result<Vec<i32>> {
    text.split(',')
        .map(|name| {
            crate::signals::by_name(name).ok_or_else(|| {
                Error::value(format!(
                    "rushlight run: --signals-to-handle {text}: {name:?} is no signal that can be handled; names look like SIGTERM,SIGUSR1"
                ))
            })
        })
        .collect()
}

/// The settings of `--rdzv-conf`.
struct Conf {
    join: Duration,
    last_call: Duration,
    is_host: Option<bool>,
}

fn conf(text: &str) -> Result<Conf> {
    let mut conf = Conf { join: Duration::from_secs(600), last_call: Duration::from_secs(30), is_host: None };
    for item in text.split(',').filter(|item| !item.trim().is_empty()) {
        let (key, value) = item
            .split_once('=')
            .ok_or_else(|| Error::value(format!("rushlight run: --rdzv-conf {item} should be KEY=VALUE")))?;
        match key.trim() {
            "join_timeout" | "timeout" => conf.join = duration("--rdzv-conf join_timeout", value)?,
            "last_call_timeout" => conf.last_call = duration("--rdzv-conf last_call_timeout", value)?,
            "is_host" => {
                conf.is_host = Some(match value.trim().to_ascii_lowercase().as_str() {
                    "1" | "true" | "t" | "yes" | "y" => true,
                    "0" | "false" | "f" | "no" | "n" => false,
                    _ => {
                        return Err(Error::value(format!(
                            "rushlight run: --rdzv-conf is_host={value} should be true or false"
                        )));
                    }
                });
            }
            // Settings of torchrun's own store, which ours does not need.
            "read_timeout"
            | "rank"
            | "close_timeout"
            | "keep_alive_interval"
            | "keep_alive_max_attempt"
            | "heartbeat_timeout"
            | "store_type" => {
                crate::console::tell_user(&format!("--rdzv-conf {key} has no effect here"));
            }
            other => {
                return Err(Error::value(format!(
                    "rushlight run: --rdzv-conf has no key {other}: use join_timeout, last_call_timeout and is_host"
                )));
            }
        }
    }
    Ok(conf)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
