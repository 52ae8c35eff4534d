//! `rushlight doctor`: faults of this machine with advice, then its capabilities.

#[cfg(target_os = "linux")]
mod checks;
#[cfg(target_os = "linux")]
mod ranks;

use rushlight_core::backend::Engine;
use rushlight_core::{Error, Result};
use rushlight_cpu::isa;
use rushlight_settings::{did_you_mean, unread_variables};
use rushlight_tensor::Tensor;
use std::ffi::OsString;
use std::io::Write;

const USAGE: &str = "Usage: rushlight doctor [-v] [--all-ranks] [--all-reduce] [--disk FOLDER]

Says what is wrong on this machine and what to do about it: processors, limits, disks, caches, networks, GPUs, drivers and
libraries; then in a few lines what it has, and which launcher started this process.

  -v, --verbose  All details: versions, paths, limits, interfaces, why a launcher was recognised
  --all-ranks    Under a launcher: ranks compare what they found, and the odd one is named
  --all-reduce   Under a launcher: times sums over all ranks, of CPU memory and of the GPUs'
  --disk FOLDER  Writes and reads 256 MiB there, by each rank at once

Examples:
  rushlight doctor
  rushlight run --nproc-per-node gpu rushlight doctor --all-ranks --all-reduce
  srun --ntasks-per-node=4 rushlight doctor --all-ranks --all-reduce --disk /scratch/me

Exit code: 0, or 1 if a test on request failed.";

/// The report of this machine.
#[derive(Default)]
pub struct Report {
    /// Facts by name.
    facts: Vec<(String, String)>,
    /// Faults and advice.
    findings: Vec<(String, String)>,
    measured: Vec<String>,
}

impl Report {
    /// Adds a fact.
    pub fn fact(&mut self, name: &str, value: String) {
        self.facts.push((name.to_owned(), value));
    }

    /// Adds a fault and its advice.
    pub fn finding(&mut self, what: String, advice: impl Into<String>) {
        self.findings.push((what, advice.into()));
    }

    /// Notes the result of a test.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub fn measured(&mut self, text: String) {
        self.measured.push(text);
    }

    fn print(&self, verbose: bool) {
        let mut text = String::new();
        for (what, advice) in &self.findings {
            text += &format!("! {what}\n    {advice}\n");
        }
        if self.findings.is_empty() {
            text += "no problem was found\n";
        }
        self.measured.iter().for_each(|line| text += &format!("{line}\n"));
        let brief = ["rushlight", "processor", "threads", "device", "launcher"];
        for (name, value) in self.facts.iter().filter(|(name, _)| verbose || brief.contains(&name.as_str())) {
            text += &format!("{name}: {value}\n");
        }
        if !verbose {
            text += "rushlight doctor -v says more\n";
        }
        // A reader such as `head` may have gone.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

/// The command line's options.
#[derive(Default)]
struct Request {
    verbose: bool,
    all_ranks: bool,
    all_reduce: bool,
    disk: Option<OsString>,
}

/// Prints the report. Returns the exit code.
pub fn doctor(arguments: &[OsString]) -> u8 {
    let mut request = Request::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.to_string_lossy().as_ref() {
            "-h" | "--help" => {
                crate::print(USAGE);
                return 0;
            }
            "-v" | "--verbose" => request.verbose = true,
            "--all-ranks" => request.all_ranks = true,
            "--all-reduce" => request.all_reduce = true,
            "--disk" if words.len() > 0 => request.disk = words.next().cloned(),
            other => {
                let advice = did_you_mean(other, USAGE);
                let text = format!("rushlight doctor: {other} is no option, or lacks its value{advice}");
                crate::complain(&format!("{text}; see rushlight doctor --help"));
                return 2;
            }
        }
    }
    let mut report = Report::default();
    report.fact("rushlight", env!("CARGO_PKG_VERSION").to_owned());
    let kernels = format!("kernels for {} of {}", isa::level().name(), isa::detected().name());
    report.fact("processor", format!("{}, {kernels}", std::env::consts::ARCH));
    report.fact("features", features().join(" "));
    report.fact("threads", rushlight_cpu::pool::num_threads().to_string());
    for text in unread_variables() {
        report.finding(text, "the book's page Settings lists all variables");
    }
    rushlight_engines::accelerators().for_each(|engine| accelerators(engine, &mut report));
    for (what, tried) in rushlight_gpu::vendor::library::searched() {
        report.fact("  searched", format!("{what}: {}", tried.join(", ")));
    }
    #[cfg(target_os = "linux")]
    {
        checks::run(&mut report);
        launch(&mut report);
        if request.all_ranks || request.all_reduce || request.disk.is_some() {
            return match together(&request, &mut report) {
                Ok(true) => {
                    report.print(request.verbose);
                    0
                }
                Ok(false) => 0,
                Err(e) => {
                    report.print(request.verbose);
                    crate::complain(&format!("rushlight doctor: {e}"));
                    1
                }
            };
        }
    }
    #[cfg(not(target_os = "linux"))]
    if request.all_ranks || request.all_reduce || request.disk.is_some() {
        crate::complain("rushlight doctor: --all-ranks, --all-reduce and --disk are for Linux");
        return 2;
    }
    report.print(request.verbose);
    0
}

/// Checks of a job's ranks together. Returns whether this rank prints.
#[cfg(target_os = "linux")]
fn together(request: &Request, report: &mut Report) -> Result<bool> {
    use rushlight_dist::Objects;
    let world = rushlight_dist::init()?;
    if request.all_ranks {
        // Facts of one rank or one moment are not compared.
        let of_all =
            ["launcher", "  because", "  device", "  interface", "  meeting point", "  secret", "device", "network"];
        let is_free_space = |name: &str| ["working folder", "temporary files", "shared memory", "home"].contains(&name);
        let mut facts: Vec<(String, String)> = Vec::new();
        for (name, value) in report.facts.iter().filter(|(name, _)| !of_all.contains(&name.as_str())) {
            let value = if is_free_space(name) { value.rsplit_once(", ").map_or(&**value, |(v, _)| v) } else { value };
            match facts.iter_mut().find(|(other, _)| other == name) {
                Some((_, all)) => *all = format!("{all}; {value}"),
                None => facts.push((name.clone(), value.to_owned())),
            }
        }
        let wrong: Vec<&str> = report.findings.iter().map(|(what, _)| what.as_str()).collect();
        facts.push(("problem".into(), if wrong.is_empty() { "none".into() } else { wrong.join("; ") }));
        for line in ranks::compare(&world, &facts)? {
            report.finding(line, "ranks of a job should have equal settings: check that rank's node and variables");
        }
        report.measured(format!("{} ranks compared", world.size()));
    }
    if request.all_reduce {
        ranks::all_reduce(&world, report)?;
    }
    if let Some(folder) = &request.disk {
        world.barrier()?;
        let mut own = Report::default();
        let result = ranks::disk(std::path::Path::new(folder), world.rank(), &mut own);
        let text = result.as_ref().map_or_else(|e| format!("! {e}"), |()| own.measured.join("\n"));
        let all = world.all_gather_object(text.as_bytes())?;
        all.iter().for_each(|line| report.measured(String::from_utf8_lossy(line).into_owned()));
        if let Some(failed) = all.iter().find(|line| line.starts_with(b"!")) {
            let why = String::from_utf8_lossy(failed).trim_start_matches("! ").to_owned();
            return if world.rank() == 0 { Err(Error::io(why)) } else { Ok(false) };
        }
    }
    Ok(world.rank() == 0)
}

/// The devices of an engine, and the vendor's libraries.
fn accelerators(engine: &dyn Engine, report: &mut Report) {
    let name = engine.name();
    match engine.count() {
        Err(e) => report.fact(&format!("{name} devices"), format!("none. {}", brief(&e))),
        Ok(count) => {
            report.fact(&format!("{name} devices"), count.to_string());
            (0..count).for_each(|index| accelerator(engine, index, report));
        }
    }
    let has_devices = engine.count().is_ok_and(|count| count > 0);
    for (name, found) in engine.libraries() {
        match found {
            Ok(library) => report.fact(name, format!("{} ({})", library.version, library.path)),
            Err(e) if has_devices => {
                report.finding(format!("{name} is missing"), brief(&e));
                report.fact(name, format!("missing. {}", brief(&e)));
            }
            // Libraries of a vendor that has no device here are no news.
            Err(_) => {}
        }
    }
}

/// An error of a library on one line, without the advice to ask this command.
fn brief(error: &Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("rushlight doctor -v")).collect();
    lines.join(" ")
}

/// The launcher's properties, line by line.
#[cfg(target_os = "linux")]
fn launch(report: &mut Report) {
    use rushlight_dist::launch::{self, Environment, Rendezvous};
    let env = Environment::current();
    let launch = match launch::detect_from(&env) {
        Ok(launch) => launch,
        Err(e) => {
            return report.finding(
                format!("launcher: {e}"),
                "start the program by one launcher only, or unset the variables it names",
            );
        }
    };
    // `rushlight run` sets torchrun's variables.
    let name = launch.launcher.to_string().replace("torchrun", "rushlight run or torchrun");
    report.fact("launcher", format!("{name}, rank {} of {}", launch.rank, launch.world_size));
    report.fact("  because", launch.reasons.join("; "));
    if let Some(advice) = &launch.advice {
        report.finding(format!("launcher: {advice}"), "or ignore this if the process is meant to run alone");
    }
    let engine = rushlight_engines::accelerator();
    let count = engine.and_then(|engine| engine.count().ok()).unwrap_or(0);
    match engine.zip(launch::choose_device(&launch, &env, count)) {
        Some((engine, choice)) => {
            report.fact("  device", format!("{}, {}", engine.device(choice.index), choice.reason))
        }
        None => report.fact("  device", "cpu, no accelerator is visible".into()),
    }
    let interfaces = launch::interfaces();
    match launch::choose_interface(&interfaces, &env) {
        Ok(Some(interface)) => report.fact("  interface", format!("{} ({})", interface.name, interface.address)),
        Ok(None) if interfaces.iter().any(launch::Interface::is_usable) => {
            report.fact("  interface", "the one on the way to rank 0".into());
        }
        Ok(None) => report.fact("  interface", "none but loopback".into()),
        Err(e) => report.fact("  interface", e.to_string()),
    }
    if launch.world_size == 1 {
        return;
    }
    match Rendezvous::new(&launch, &env) {
        Ok(meeting) => {
            let ports: Vec<String> = meeting.ports.iter().map(u16::to_string).collect();
            report
                .fact("  meeting point", format!("{}, port {} ({})", meeting.host, ports.join(" or "), meeting.reason));
            match launch::job_secret(&launch, &meeting) {
                Ok((_, source)) => report.fact("  secret", source.to_string()),
                Err(e) => report.finding(
                    format!("the job's secret: {e}"),
                    "export RUSHLIGHT_JOB_SECRET with the same text on every node",
                ),
            }
        }
        Err(e) => report.finding(format!("the ranks' meeting point: {e}"), "set MASTER_ADDR and MASTER_PORT"),
    }
}

fn accelerator(engine: &dyn Engine, index: usize, report: &mut Report) {
    let device = engine.device(index);
    let tool = match engine.name() {
        "hip" => "`rocm-smi`",
        "xpu" => "`xpu-smi discovery`",
        _ => "`nvidia-smi`",
    };
    match engine.properties(index) {
        Ok(p) => {
            let memory = p.memory as f64 / (1u64 << 30) as f64;
            let (major, minor) = p.capability;
            let text = format!("{} multiprocessors, compute capability {major}.{minor}", p.multiprocessors);
            report.fact("device", format!("{device}: {}, {memory:.1} GiB, {text}, driver for {}", p.name, p.driver));
        }
        Err(e) => report.finding(format!("{device}: {e}"), format!("see {tool}; the device may need a reset")),
    }
    // A kernel, and its answer.
    let computed = Tensor::ones_with([2], device).and_then(|x| x.add(&x)).and_then(|x| x.to_vec::<f32>());
    match computed {
        Ok(values) if values == [2.0, 2.0] => {}
        Ok(values) => report.finding(
            format!("{device} computes wrong: 1 + 1 is {values:?}"),
            format!("do not use it; see {tool} for memory errors, and tell the administrators"),
        ),
        Err(e) => {
            report.finding(format!("{device} cannot be used: {e}"), format!("see {tool}: another job may hold it"))
        }
    }
}

/// The processor features that the engine uses.
fn features() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! look {
            ($($name:tt)*) => {$(
                if std::arch::is_x86_feature_detected!($name) {
                    found.push($name);
                }
            )*};
        }
        look!("avx2" "fma" "f16c" "bmi2" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512bf16" "avx512vnni");
    }
    #[cfg(target_arch = "aarch64")]
    {
        macro_rules! look {
            ($($name:tt)*) => {$(
                if std::arch::is_aarch64_feature_detected!($name) {
                    found.push($name);
                }
            )*};
        }
        look!("neon" "dotprod" "bf16" "i8mm" "fp16" "sve");
    }
    if found.is_empty() {
        found.push("none that the engine uses");
    }
    found
}
