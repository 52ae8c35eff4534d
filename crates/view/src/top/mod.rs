//! `rushlight top`: GPUs and processors in a terminal, of this machine or of all nodes of a job; the curves of a run.

mod curves;
#[cfg(target_os = "linux")]
mod nodes;
mod screen;
#[cfg(target_os = "linux")]
mod terminal;

use rushlight_monitor::{HostProcess, Monitor, Sample};
use rushlight_settings::did_you_mean;
use screen::{Node, Screen};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "Usage: rushlight top [OPTIONS] [RUN]

RUN is the directory of a training run, or of several: the curves of the one that was written to last. Without it:
Shows utilisation, memory, power, temperature, clocks and processes of every GPU (by NVML, ROCm SMI or Level Zero Sysman) and of the
processors. q ends it. Where standard output is no terminal it prints once.

  --once           Prints once
  --json           Prints a line of JSON for each machine and sample; with --once one line each
  --interval S     Seconds between samples; 1 if not said
  --job ID         All nodes of a running Slurm job
  --all-ranks      Under a launcher: all nodes of the job, drawn by the first rank (`srun --overlap --ntasks-per-node=1 rushlight top --all-ranks`)

Exit code: 0; 1 if the nodes of a job cannot be asked.";

/// Seconds between the two samples of `--once`; rates need two.
const ONCE: Duration = Duration::from_millis(500);
/// Maximum processes shown.
const PROCESSES: usize = 8;

/// The command line's options.
struct Request {
    once: bool,
    json: bool,
    interval: Duration,
    job: Option<String>,
    all_ranks: bool,
    run: Option<PathBuf>,
}

fn read(arguments: &[OsString]) -> Result<Request, (String, u8)> {
    let wrong = |text: String| (format!("rushlight top: {text}; see rushlight top --help"), 2);
    let mut request =
        Request { once: false, json: false, interval: Duration::from_secs(1), job: None, all_ranks: false, run: None };
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut words = words.into_iter().flat_map(|word| match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name.to_owned(), value.to_owned()],
        _ => vec![word],
    });
    while let Some(word) = words.next() {
        match word.as_str() {
            "-h" | "--help" => return Err((USAGE.into(), 0)),
            "--once" => request.once = true,
            "--json" => request.json = true,
            "--all-ranks" => request.all_ranks = true,
            "--job" => match words.next().filter(|id| !id.is_empty() && !id.starts_with('-')) {
                Some(id) => request.job = Some(id),
                None => return Err(wrong("--job lacks the number of a job".into())),
            },
            "--interval" => {
                let text = words.next().unwrap_or_default();
                match text.parse::<f64>() {
                    Ok(seconds) if (0.1..=3600.0).contains(&seconds) => {
                        request.interval = Duration::from_secs_f64(seconds);
                    }
                    _ => return Err(wrong(format!("--interval {text:?} is no time from 0.1 to 3600 seconds"))),
                }
            }
            other if !other.starts_with('-') && request.run.is_none() => request.run = Some(other.into()),
            other => return Err(wrong(format!("{other} is no option{}", did_you_mean(other, USAGE)))),
        }
    }
    if request.run.is_some() && (request.job.is_some() || request.all_ranks || request.json) {
        return Err(wrong("a run is shown by itself, without --job, --all-ranks and --json".into()));
    }
    if request.job.is_some() && request.all_ranks {
        return Err(wrong("--job queries the nodes itself; --all-ranks is for a launcher".into()));
    }
    Ok(request)
}

/// Takes samples of this machine.
struct Here {
    monitor: Monitor,
}

impl Here {
    /// Takes the first sample, so that the next has rates.
    fn new() -> Self {
        let mut monitor = Monitor::new();
        monitor.sample();
        monitor.busiest(0);
        Self { monitor }
    }

    fn sample(&mut self) -> (Sample, Vec<HostProcess>) {
        (self.monitor.sample(), self.monitor.busiest(PROCESSES))
    }
}

fn json_line(sample: &Sample, processes: &[HostProcess]) -> String {
    let mut json = sample.to_json();
    json["processes"] = processes.iter().map(HostProcess::to_json).collect::<Vec<_>>().into();
    json.to_string()
}

/// Runs `rushlight top`. `myself` is the command that starts it again, on the nodes of a job. Returns the exit code.
pub fn top(arguments: &[OsString], myself: &[OsString]) -> u8 {
    let mut request = match read(arguments) {
        Ok(request) => request,
        Err((text, 0)) => {
            println!("{text}");
            return 0;
        }
        Err((text, code)) => {
            eprintln!("{text}");
            return code;
        }
    };
    request.once |= !request.json && !std::io::stdout().is_terminal();
    #[cfg(target_os = "linux")]
    let result = match &request.job {
        Some(job) => nodes::of_job(&request, job, myself),
        None if request.run.is_some() => of_run(&request),
        None if request.all_ranks => nodes::of_ranks(&request).map_err(|e| e.to_string()),
        None => here(&request),
    };
    #[cfg(not(target_os = "linux"))]
    let _ = myself;
    #[cfg(not(target_os = "linux"))]
    let result = match request.job.is_some() || request.all_ranks {
        true => Err("--job and --all-ranks are for Linux".to_owned()),
        false if request.run.is_some() => of_run(&request),
        false => here(&request),
    };
    match result {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("rushlight top: {e}");
            1
        }
    }
}

/// The curves of a run, once or as they grow.
fn of_run(request: &Request) -> Result<(), String> {
    let Some(directory) = &request.run else { return Ok(()) };
    let curves = curves::Curves::open(directory)?;
    if request.once {
        curves.read();
        print(&curves.lines(100, 100).join("\n"));
        return Ok(());
    }
    curves.follow()?;
    redraw(request.interval, |columns, rows| curves.lines(columns, rows))
}

/// This machine alone.
fn here(request: &Request) -> Result<(), String> {
    let mut here = Here::new();
    if request.once || request.json {
        loop {
            std::thread::sleep(if request.once { ONCE } else { request.interval });
            let (sample, processes) = here.sample();
            let printed = match request.json {
                true => print(&json_line(&sample, &processes)),
                false => print(&plain(&[Node { sample, processes }])),
            };
            if request.once || !printed {
                return Ok(());
            }
        }
    }
    show(request.interval, || {
        let (sample, processes) = here.sample();
        Some(vec![Node { sample, processes }])
    })
}

/// Prints a text. Returns whether the reader is still there.
fn print(text: &str) -> bool {
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Nodes as lines without colours, for a pipe or a file.
fn plain(nodes: &[Node]) -> String {
    let mut screen = Screen::new(false);
    screen.note(nodes);
    screen.lines(nodes, 120).join("\n")
}

/// Redraws until the user quits or there is nothing more.
#[cfg(target_os = "linux")]
fn redraw(interval: Duration, lines: impl Fn(usize, usize) -> Vec<String>) -> Result<(), String> {
    let mut terminal = terminal::Terminal::open().map_err(|e| format!("the terminal cannot be used: {e}"))?;
    loop {
        let (columns, rows) = terminal.size();
        if terminal.draw(&lines(columns, rows), rows).is_err() {
            return Ok(());
        }
        if let terminal::Event::Quit = terminal.wait(interval) {
            return Ok(());
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn redraw(interval: Duration, lines: impl Fn(usize, usize) -> Vec<String>) -> Result<(), String> {
    while print(&lines(100, 100).join("\n")) {
        std::thread::sleep(interval);
    }
    Ok(())
}

/// Redraws nodes until the user quits or there is nothing more.
#[cfg(target_os = "linux")]
fn show(interval: Duration, mut next: impl FnMut() -> Option<Vec<Node>>) -> Result<(), String> {
    let mut terminal = terminal::Terminal::open().map_err(|e| format!("the terminal cannot be used: {e}"))?;
    let mut screen = Screen::new(std::env::var_os("NO_COLOR").is_none());
    loop {
        let Some(nodes) = next() else { return Ok(()) };
        screen.note(&nodes);
        loop {
            let (columns, rows) = terminal.size();
            if terminal.draw(&screen.lines(&nodes, columns), rows).is_err() {
                return Ok(());
            }
            match terminal.wait(interval) {
                terminal::Event::Quit => return Ok(()),
                terminal::Event::Resized => {}
                terminal::Event::Time => break,
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn show(interval: Duration, mut next: impl FnMut() -> Option<Vec<Node>>) -> Result<(), String> {
    while let Some(nodes) = next() {
        if !print(&plain(&nodes)) {
            return Ok(());
        }
        std::thread::sleep(interval);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(read(&words("--once runs/a")).ok().and_then(|r| r.run), Some("runs/a".into()));
        let request = read(&words("--once --interval=2.5 --job 7")).ok().unwrap();
        assert!(request.once && request.interval == Duration::from_millis(2500) && request.job.as_deref() == Some("7"));
        for bad in [
            "--interval",
            "--interval 0",
            "--interval x",
            "--job",
            "--job --once",
            "--frob",
            "x y",
            "x --json",
            "--job 1 --all-ranks",
        ] {
            assert_eq!(read(&words(bad)).err().map(|(_, code)| code), Some(2), "{bad}");
        }
        assert_eq!(read(&words("--help")).err().map(|(_, code)| code), Some(0));
    }
}
