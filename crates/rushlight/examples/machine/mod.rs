//! What every example takes: where to run, with how many threads, from which seed. And how to read options.

// Each example uses what it needs of this.
#![allow(dead_code)]

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use rushlight::prelude::*;
use rushlight::train::{Resume, TrainerBuilder};
use std::io::Write;

/// `println!` that ends the program where `println!` panics: when nobody reads the output any more, as in
/// `chargpt | head`.
macro_rules! say {
    ($($text:tt)*) => { crate::machine::print_line(format_args!($($text)*)) };
}

/// Prints a line, on the first rank only; ends the program if the pipe is closed.
pub fn print_line(line: std::fmt::Arguments) {
    if rank() > 0 {
        return;
    }
    let printed = writeln!(std::io::stdout().lock(), "{line}");
    if printed.is_err_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
        std::process::exit(0);
    }
}

/// A command with the options that every example has.
pub fn command(name: &'static str, about: &'static str, example: &'static str) -> Command {
    Command::new(name).about(about).after_help(format!("Example: {example}")).args([
        option("device", "auto", "Where to train: cpu, cuda, xpu; auto takes the GPU that is this rank's, or the CPU"),
        option("threads", "0", "Threads to compute with; 0 means all cores").value_parser(value_parser!(usize)),
        option("seed", "0", "Seed of all random numbers").value_parser(value_parser!(u64)),
    ])
}

/// `--name <VALUE>` with a default.
pub fn option(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).default_value(default).help(help)
}

/// [`option`] whose value is a count.
pub fn count(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    option(name, default, help).value_parser(value_parser!(usize))
}

/// [`option`] whose value is a number.
pub fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    option(name, default, help).value_parser(value_parser!(f64))
}

/// `--precision f32|tf32|bf16|f16`.
pub fn precision() -> Arg {
    let help = "f32, tf32 for products on tensor cores, bf16 or f16 for mixed precision";
    option("precision", "f32", help).value_parser(ValueParser::from(["f32", "tf32", "bf16", "f16"]))
}

/// `--runs DIR`, `--resume` and `--profiler KIND`.
pub fn runs() -> [Arg; 3] {
    [
        option("runs", "runs", "Where the run has its directory, with logs and checkpoints; - for none"),
        Arg::new("resume").long("resume").action(ArgAction::SetTrue).help("Go on with the last run of this program"),
        Arg::new("profiler").long("profiler").value_parser(["simple", "trace"]).help("Say where the time went"),
    ]
}

/// `--no-capture`.
pub fn no_capture() -> Arg {
    Arg::new("no-capture")
        .long("no-capture")
        .action(ArgAction::SetTrue)
        .help("Do not replay steps as one graph of the GPU")
}

/// Steps on a device, captured unless [`no_capture`] says otherwise.
pub fn capture(matches: &ArgMatches, device: Device) -> Capture {
    Capture::new().device(device).enabled(!matches.get_flag("no-capture"))
}

/// The value of an option that has a default.
pub fn get<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    matches.get_one::<T>(name).cloned().expect("the option has a default")
}

/// A Trainer as the options say; of a program's name.
pub fn trainer(matches: &ArgMatches, name: &str, device: Device) -> Result<TrainerBuilder> {
    let runs: String = get(matches, "runs");
    let builder = Trainer::builder()
        .device(device)
        .precision(get::<String>(matches, "precision").parse()?)
        .capture(!matches.get_flag("no-capture"))
        .run_directory((runs != "-").then(|| runs.into()))
        .run_name(name)
        .save_on_interrupt(true);
    let builder = match matches.get_one::<String>("profiler") {
        Some(name) => builder.profiler(name.parse()?),
        None => builder,
    };
    Ok(if matches.get_flag("resume") { builder.resume(Resume::Auto) } else { builder })
}

/// Ends a program whose job loses its nodes, or that Ctrl-C interrupted. The run was saved. If the job was preempted,
/// the exit code asks the scheduler or `rushlight run` for another job. With `--resume` the program then continues.
pub fn exit_if_preempted(trainer: Trainer) {
    if let Some(code) = trainer.preempted() {
        drop(trainer);
        std::process::exit(code);
    }
}

/// Sets threads and seed; says at once if the device is not there.
pub fn prepare(matches: &ArgMatches) -> Result<Device> {
    match get::<usize>(matches, "threads") {
        0 => {}
        threads => rushlight::set_num_threads(threads),
    }
    manual_seed(get(matches, "seed"));
    let device = match get::<String>(matches, "device").as_str() {
        "auto" => own_device()?,
        name => name.parse()?,
    };
    Tensor::zeros_with([1], device)?;
    Ok(device)
}

#[cfg(target_os = "linux")]
fn own_device() -> Result<Device> {
    rushlight::dist::launch::device()
}

#[cfg(not(target_os = "linux"))]
fn own_device() -> Result<Device> {
    Ok(rushlight::engines::accelerator().map_or(Device::Cpu, |engine| engine.device(0)))
}

/// The rank that the launcher gave this process.
#[cfg(target_os = "linux")]
fn rank() -> usize {
    static RANK: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *RANK.get_or_init(|| rushlight::dist::launch::detect().map_or(0, |launch| launch.rank))
}

#[cfg(not(target_os = "linux"))]
fn rank() -> usize {
    0
}
