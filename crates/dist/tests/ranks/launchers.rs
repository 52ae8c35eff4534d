//! Real launchers: their paths, and how they start this test binary once for each rank.

use rushlight_dist::{Init, World};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a launcher may take before it is killed.
const WATCHDOG: Duration = Duration::from_secs(120);
/// Set for ranks: which test they belong to.
const RANK_OF: &str = "RUSHLIGHT_TEST_RANK_OF";

/// Where `scripts/launchers` puts what it installs.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/launchers")
}

/// A program of the system.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    places.map(|directory| directory.join(name)).find(|file| file.exists())
}

/// A test whose ranks a real launcher starts.
pub struct Launched {
    test: &'static str,
    launcher: &'static str,
    ranks: usize,
    backend: &'static str,
    timeout: Duration,
    variables: Vec<(&'static str, String)>,
    /// Minimum number of ranks that must report ([`report`]), if they are expected to fail.
    fails: Option<usize>,
    /// Whether the rendezvous must fail on every rank.
    refused: bool,
    /// Ranks that must report before the launcher learns that any has ended.
    survivors: &'static [usize],
}

/// Runs a rank and hides its end from the launcher until all survivors have reported, or a minute has passed: launchers
/// kill the other ranks when one dies.
const HIDE: &str = r#""$@"; i=0; while [ $i -lt 600 ]; do all=yes; for r in $SURVIVORS; do [ -e "$SEEN$r" ] || all=no; done
    [ $all = yes ] && exit 0; i=$((i + 1)); sleep 0.1; done"#;

impl Launched {
    /// `test` is the name of the test function that calls this; `launcher` one of `mpich`, `openmpi`, `impi` (which
    /// `scripts/launchers` installs), `debian-mpich` and `debian-openmpi`.
    pub fn new(test: &'static str, launcher: &'static str, ranks: usize) -> Self {
        let timeout = Duration::from_secs(60);
        Self {
            test,
            launcher,
            ranks,
            backend: "mpi",
            timeout,
            variables: Vec::new(),
            fails: None,
            refused: false,
            survivors: &[],
        }
    }

    /// The engine; `mpi` unless set.
    pub fn backend(mut self, backend: &'static str) -> Self {
        self.backend = backend;
        self
    }

    /// The world's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets a variable of the launcher and its ranks.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Ranks may fail; at least this many must report that they have seen the expected error ([`report`]).
    pub fn fails(mut self, reports: usize) -> Self {
        self.fails = Some(reports);
        self
    }

    /// These ranks must report ([`report_as`]); the launcher does not see any rank's end before.
    pub fn survivors(mut self, survivors: &'static [usize]) -> Self {
        self.survivors = survivors;
        self.fails(survivors.len())
    }

    /// The library `name` of the launcher's own MPI.
    pub fn library(self, name: &str) -> Self {
        let path = self.library_path(name);
        self.with("RUSHLIGHT_MPI_LIBRARY", path.display().to_string())
    }

    /// Where that library is.
    pub fn library_path(&self, name: &str) -> PathBuf {
        installed().join(self.launcher).join("lib").join(name)
    }

    /// Takes over another test's variables.
    pub fn variables_of(mut self, other: Launched) -> Self {
        self.variables.extend(other.variables);
        self
    }

    /// Requires that the rendezvous fails on every rank, with an error that `body` checks.
    pub fn refused(mut self, body: impl FnOnce(&str)) {
        if self.is_rank() {
            let error = Init::new().timeout(self.timeout).backend(self.backend).build().err();
            body(&error.expect("an error").to_string());
            return report();
        }
        self.refused = true;
        self.run(|_| ());
    }

    fn is_rank(&self) -> bool {
        std::env::var(RANK_OF).is_ok_and(|test| test == self.test)
    }

    /// The launcher, if it is here.
    pub fn program(&self) -> Option<PathBuf> {
        let ours = |program: &str| Some(installed().join(self.launcher).join("bin").join(program));
        let program = match self.launcher {
            "mpich" | "impi" => ours("mpiexec.hydra"),
            "openmpi" => ours("mpiexec"),
            "debian-mpich" => on_path("mpiexec.mpich"),
            "debian-openmpi" => on_path("mpiexec.openmpi"),
            other => panic!("no launcher {other}"),
        };
        program.filter(|program| program.exists())
    }

    fn command(&self) -> Option<Command> {
        let mut command = Command::new(self.program()?);
        if self.launcher.ends_with("openmpi") {
            command.arg("--oversubscribe");
        }
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
            command.env(name, "1").env(format!("{name}_CONFIRM"), "1");
        }
        if self.launcher == "impi" {
            // Within one machine; otherwise it would look for a fabric.
            command.env("I_MPI_ROOT", installed().join("impi")).env("I_MPI_FABRICS", "shm");
        }
        Some(command)
    }

    /// Runs `body` in each rank. Without the launcher the test is skipped, unless CI must have it.
    pub fn run(self, body: impl FnOnce(World)) {
        if self.is_rank() {
            let init = Init::new().timeout(self.timeout).backend(self.backend);
            return body(init.build().unwrap_or_else(|e| panic!("the ranks meet: {e}")));
        }
        let Some(mut command) = self.command() else {
            let system = self.launcher.starts_with("debian-");
            assert!(system || std::env::var_os("CI").is_none(), "{} is missing: run scripts/launchers", self.launcher);
            return println!("skipped: no {} here (scripts/launchers installs the others)", self.launcher);
        };
        let exe = std::env::current_exe().expect("this program");
        command.args(["-n", &self.ranks.to_string()]);
        let seen = std::env::temp_dir().join(format!("rushlight-seen-{}-{:?}-", std::process::id(), Instant::now()));
        let seen = seen.display().to_string().replace(' ', "");
        if !self.survivors.is_empty() {
            let names: Vec<String> = self.survivors.iter().map(usize::to_string).collect();
            command.args(["sh", "-c", HIDE, "sh"]).env("SEEN", &seen).env("SURVIVORS", names.join(" "));
        }
        command.arg(exe);
        command.args([self.test, "--exact", "--nocapture", "--include-ignored"]);
        command.env(RANK_OF, self.test).env("RUSHLIGHT_NUM_THREADS", "1").envs(self.variables.iter().cloned());
        let (status, output) = watch(command);
        self.survivors.iter().for_each(|rank| drop(std::fs::remove_file(format!("{seen}{rank}"))));
        assert!(status || self.fails.is_some(), "{} under {}:\n{output}", self.test, self.launcher);
        let reports = output.matches("reported by a rank").count();
        let expected = self.fails.unwrap_or(if self.refused { self.ranks } else { 0 });
        assert!(reports >= expected, "{} under {}:\n{output}", self.test, self.launcher);
    }
}

/// Reports that a rank of a failing test has seen the expected error.
pub fn report() {
    eprintln!("reported by a rank");
}

/// [`report`] of a survivor.
pub fn report_as(rank: usize) {
    report();
    let seen = std::env::var("SEEN").expect("a test with survivors");
    std::fs::write(format!("{seen}{rank}"), "").expect("a file");
}

/// Runs a command to its end. Returns whether it succeeded, and its output.
pub fn watch(mut command: Command) -> (bool, String) {
    let name = format!("{command:?}");
    let log = std::env::temp_dir().join(format!("rushlight-launched-{}-{:?}", std::process::id(), Instant::now()));
    let file = std::fs::File::create(&log).expect("a log");
    command.stdin(Stdio::null()).stdout(file.try_clone().expect("a log")).stderr(file);
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
    let deadline = Instant::now() + WATCHDOG;
    let status = loop {
        match child.try_wait().expect("the state of a process") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let output = std::fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    match status {
        Some(status) => (status.success(), output),
        None => panic!("{name} hangs:\n{output}"),
    }
}
