//! A launcher under test, with a watchdog.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Timeout after which a test kills what it started.
const WATCHDOG: Duration = Duration::from_secs(180);

/// A folder that is removed at the end of a test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rushlight-launcher-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn touch(&self, name: &str) {
        std::fs::write(self.path(name), b"").expect("a file");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running `rushlight run`.
pub struct Launcher {
    child: Child,
    /// Standard output and standard error so far.
    text: Arc<Mutex<(String, String)>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Launcher {
    /// Starts `rushlight run` with options, and `sh -c script` as the program. The directory is the home and, as `$F`,
    /// the scripts' shared directory.
    pub fn start(options: &[&str], script: &str, folder: &Folder) -> Self {
        Self::start_program(options, &["sh", "-c", script], folder)
    }

    /// [`start`](Self::start) on a terminal that takes no output: nobody reads it.
    pub fn start_stalled(options: &[&str], script: &str, folder: &Folder) -> Self {
        Self { child: spawn(options, &["sh", "-c", script], folder), text: Arc::default(), readers: Vec::new() }
    }

    /// Starts `rushlight run` with options and a program.
    pub fn start_program(options: &[&str], program: &[&str], folder: &Folder) -> Self {
        let mut child = spawn(options, program, folder);
        let text = Arc::new(Mutex::new((String::new(), String::new())));
        let reader = |mut stream: Box<dyn Read + Send>, error: bool| {
            let text = text.clone();
            std::thread::spawn(move || {
                let mut buffer = [0u8; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    let mut text = text.lock().unwrap();
                    let part = String::from_utf8_lossy(&buffer[..n]).into_owned();
                    if error { text.1 += &part } else { text.0 += &part }
                }
            })
        };
        let out = Box::new(child.stdout.take().expect("a pipe"));
        let err = Box::new(child.stderr.take().expect("a pipe"));
        let readers = vec![reader(out, false), reader(err, true)];
        Self { child, text, readers }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn out(&self) -> String {
        self.text.lock().unwrap().0.clone()
    }

    pub fn err(&self) -> String {
        self.text.lock().unwrap().1.clone()
    }

    pub fn signal(&self, signal: &str) {
        kill(self.pid(), signal);
    }

    /// Waits until a condition holds.
    pub fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        until(
            &format!("{what}; output: {} {}", self.out(), self.err()),
            || holds(self),
            || format!("{}\n{}", self.out(), self.err()),
        );
    }

    /// Waits for the end. Returns the exit code (`None` if a signal ended it), standard output and standard error.
    pub fn finish(mut self) -> (Option<i32>, String, String) {
        let deadline = Instant::now() + WATCHDOG;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a state") {
                break status;
            }
            if Instant::now() > deadline {
                panic!("the launcher hangs; output: {}\n{}", self.out(), self.err());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        for reader in std::mem::take(&mut self.readers) {
            reader.join().expect("a reader");
        }
        (status.code(), self.out(), self.err())
    }
}

fn spawn(options: &[&str], program: &[&str], folder: &Folder) -> Child {
    // Tests in the background of a script inherit ignored signals, which the launcher keeps ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT,HUP", env!("CARGO_BIN_EXE_rushlight")]);
    command.arg("run").args(options).args(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let foreign = ["SLURM_", "PMI_", "OMPI_", "PET_", "TORCHELASTIC_", "PALS_"];
        if foreign.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    for name in ["RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "RUSHLIGHT_NUM_THREADS", "RUSHLIGHT_JOB_SECRET"] {
        command.env_remove(name);
    }
    command.env("HOME", &folder.0).env("F", &folder.0).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher")
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds, no longer than the watchdog allows.
pub fn until(what: &str, holds: impl Fn() -> bool, seen: impl Fn() -> String) {
    let deadline = Instant::now() + WATCHDOG;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting: {what}; seen: {}", seen());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn kill(pid: i32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().expect("kill");
    assert!(status.success(), "kill -{signal} {pid}");
}

/// Whether a process runs: it exists and is not a zombie.
pub fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Numbers that scripts have left in files whose names begin with `prefix`.
pub fn numbers(folder: &Path, prefix: &str) -> Vec<i32> {
    let mut found: Vec<i32> = std::fs::read_dir(folder)
        .expect("the folder")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok()?.trim().parse().ok())
        .collect();
    found.sort_unstable();
    found
}

/// A port that is free now.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}
