//! The machine: processors, memory, processes, by the kernel's files under `/proc`.

use std::collections::HashMap;
use std::time::Instant;

/// The machine at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Model of its processors.
    pub cpu: String,
    /// Per cent in use of each processor since the sample before; empty at first.
    pub cores: Vec<f64>,
    /// Processes that run or wait to, on the average of a minute.
    pub load: Option<f64>,
    /// Bytes of memory in all.
    pub memory_total: Option<u64>,
    /// Bytes that programs use and cannot be had at once.
    pub memory_used: Option<u64>,
    /// The hottest sensor of the processors, in degrees Celsius.
    pub temperature: Option<f64>,
    /// MHz of the fastest processor.
    pub clock: Option<f64>,
}

impl Host {
    /// Per cent in use of all processors together.
    pub fn utilisation(&self) -> Option<f64> {
        (!self.cores.is_empty()).then(|| self.cores.iter().sum::<f64>() / self.cores.len() as f64)
    }
}

/// A process and its resource use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostProcess {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Per cent of one processor.
    pub cpu: f64,
    /// Resident bytes.
    pub memory: u64,
}

/// Remembers counters between samples.
#[derive(Clone, Debug, Default)]
pub struct HostReader {
    /// Busy and whole time of each processor.
    cores: Vec<(u64, u64)>,
    cpu: Option<String>,
    /// Processor time of processes, in ticks.
    processes: HashMap<u32, u64>,
    processes_at: Option<Instant>,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The name of a process: its program, without directories; for interpreters the script too. Empty if it has gone or is
/// another user's in another container.
pub fn process_name(pid: u32) -> String {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> =
        command.split(|b| *b == 0).filter(|w| !w.is_empty()).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match words.as_slice() {
        [] => read(&format!("/proc/{pid}/comm")).trim().to_owned(),
        [program, rest @ ..] => {
            let name = base(program);
            // The module after `-m`, or a word that looks like a script.
            let module = rest.iter().position(|word| word == "-m").and_then(|at| rest.get(at + 1));
            let script = module.or_else(|| rest.iter().find(|word| word.ends_with(".py") || word.ends_with(".sh")));
            match script.filter(|_| name.starts_with("python") || name.ends_with("sh")) {
                Some(script) => format!("{name} {}", base(script)),
                None => name,
            }
        }
    }
}

/// Busy and whole time of each processor, from `/proc/stat`.
fn core_times(text: &str) -> Vec<(u64, u64)> {
    let lines = text
        .lines()
        .filter(|line| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    lines
        .map(|line| {
            // User, nice, system, idle, waiting, interrupts (2), stolen; guests are counted as users.
            let times: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|w| w.parse().ok()).collect();
            let idle = times.get(3).unwrap_or(&0) + times.get(4).unwrap_or(&0);
            let whole: u64 = times.iter().sum();
            (whole.saturating_sub(idle), whole)
        })
        .collect()
}

/// Bytes of a line of `/proc/meminfo`.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// The hottest sensor of a driver of processors.
fn temperature() -> Option<f64> {
    let monitors = std::fs::read_dir("/sys/class/hwmon").into_iter().flatten().flatten();
    let of_processors = monitors.map(|entry| entry.path()).filter(|path| {
        let name = std::fs::read_to_string(path.join("name")).unwrap_or_default();
        ["coretemp", "k10temp", "zenpower", "cpu_thermal"].contains(&name.trim())
    });
    let sensors = of_processors.flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten());
    let inputs = sensors.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("temp") && name.ends_with("_input")
    });
    let values = inputs.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()?.trim().parse::<f64>().ok());
    values.map(|milli| milli / 1000.0).reduce(f64::max)
}

/// The name of the processors and the clock of the fastest, from `/proc/cpuinfo`.
fn cpuinfo(text: &str) -> (String, Option<f64>) {
    let value = |line: &str, name: &str| {
        line.strip_prefix(name).map(|rest| rest.trim_start_matches(['\t', ' ', ':']).trim().to_owned())
    };
    let name = text.lines().find_map(|line| value(line, "model name")).unwrap_or_else(|| std::env::consts::ARCH.into());
    let clocks = text.lines().filter_map(|line| value(line, "cpu MHz")?.parse::<f64>().ok());
    (name, clocks.reduce(f64::max))
}

impl HostReader {
    /// The machine now.
    pub fn read(&mut self) -> Host {
        let times = core_times(&read("/proc/stat"));
        let percent = |(now, before): (&(u64, u64), &(u64, u64))| {
            let whole = now.1.saturating_sub(before.1);
            let busy = now.0.saturating_sub(before.0);
            if whole == 0 { 0.0 } else { (busy as f64 / whole as f64 * 100.0).min(100.0) }
        };
        let cores = match times.len() == self.cores.len() {
            true => times.iter().zip(&self.cores).map(percent).collect(),
            false => Vec::new(),
        };
        self.cores = times;
        let (name, clock) = cpuinfo(&read("/proc/cpuinfo"));
        let memory = read("/proc/meminfo");
        let total = meminfo(&memory, "MemTotal");
        Host {
            name: read("/proc/sys/kernel/hostname").trim().to_owned(),
            cpu: self.cpu.get_or_insert(name).clone(),
            cores,
            load: read("/proc/loadavg").split_whitespace().next().and_then(|word| word.parse().ok()),
            memory_total: total,
            memory_used: total.zip(meminfo(&memory, "MemAvailable")).map(|(total, free)| total.saturating_sub(free)),
            temperature: temperature(),
            clock,
        }
    }

    /// The busiest processes since the last call.
    pub fn busiest(&mut self, most: usize) -> Vec<HostProcess> {
        // The kernel counts for programs in hundredths of a second, whatever its own clock.
        const TICKS: f64 = 100.0;
        let seconds = self.processes_at.replace(Instant::now()).map(|at| at.elapsed().as_secs_f64());
        let before = std::mem::take(&mut self.processes);
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let stat = read(&format!("/proc/{pid}/stat"));
            let Some(ticks) = process_time(&stat) else { continue };
            if let (Some(seconds), Some(earlier)) = (seconds, before.get(&pid)) {
                let cpu = ticks.saturating_sub(*earlier) as f64 / TICKS / seconds.max(1e-3) * 100.0;
                found.push(HostProcess { pid, cpu, ..HostProcess::default() });
            }
            self.processes.insert(pid, ticks);
        }
        found.sort_by(|a, b| b.cpu.total_cmp(&a.cpu).then(a.pid.cmp(&b.pid)));
        found.truncate(most);
        found.retain(|process| process.cpu >= 0.5);
        for process in &mut found {
            process.name = process_name(process.pid);
            process.memory = meminfo(&read(&format!("/proc/{}/status", process.pid)), "VmRSS").unwrap_or(0);
        }
        found
    }
}

/// Processor time of a process in ticks, from its `stat`. Its name may hold anything.
fn process_time(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(number(11)? + number(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel() {
        let stat = "cpu  9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 0 0\ncpu1 50 0 0 50\nintr 5\ncpufreq 1\n";
        assert_eq!(core_times(stat), [(20, 100), (50, 100)]);
        assert_eq!(meminfo("MemTotal:       16 kB\nMemAvailable: 4 kB\n", "MemTotal"), Some(16 << 10));
        assert_eq!(meminfo("MemTotalX: 1 kB", "MemTotal"), None);
        let (name, clock) = cpuinfo("model name\t: A CPU\ncpu MHz\t\t: 1000.5\ncpu MHz\t\t: 2000.0\n");
        assert_eq!((name.as_str(), clock), ("A CPU", Some(2000.0)));
        let stat = "7 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0 5 1000 77 0";
        assert_eq!(process_time(stat), Some(42));
        assert_eq!(process_time("7 (x) S"), None);
    }

    #[test]
    fn this_machine() {
        let mut reader = HostReader::default();
        let first = reader.read();
        assert!(first.cores.is_empty());
        if cfg!(target_os = "linux") {
            let second = reader.read();
            assert!(!second.cores.is_empty() && second.cores.iter().all(|c| (0.0..=100.0).contains(c)));
            assert!(second.memory_total > second.memory_used);
            assert!(!process_name(std::process::id()).is_empty());
            reader.busiest(3);
            assert!(reader.busiest(3).len() <= 3);
        }
    }
}
