//! Tests of several processes: the test binary starts itself once for each rank.

use rushlight_core::{Device, Result};
use rushlight_dist::{Init, World};
use rushlight_tensor::Tensor;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test may take before its processes are killed.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The device of the tensors: `RUSHLIGHT_TEST_DEVICE`, else the CPU. All ranks share it. Panics if the named device is
/// missing.
pub fn device() -> Device {
    let name = std::env::var("RUSHLIGHT_TEST_DEVICE").unwrap_or("cpu".into());
    let device = name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device");
    match Tensor::zeros_with([1], device) {
        Ok(_) => device,
        Err(e) => panic!("RUSHLIGHT_TEST_DEVICE={name}: {e}"),
    }
}

/// A job of processes on this machine.
pub struct Ranks {
    test: &'static str,
    count: usize,
    nodes: usize,
    timeout: Duration,
    /// Ranks that are expected to fail.
    victims: &'static [usize],
    /// Variables of each rank.
    variables: fn(usize) -> Vec<(&'static str, String)>,
    /// Command prefix of each rank.
    prefix: Box<dyn Fn(usize) -> Vec<String>>,
    /// Whether a launcher's variables determine the ranks; otherwise the test does.
    launched: bool,
    /// The world size that each rank is told, if they differ.
    sizes: Option<fn(usize) -> usize>,
    /// Ranks that are not started.
    absent: &'static [usize],
}

impl Ranks {
    /// `test` is the name of the test function that calls this.
    pub fn new(test: &'static str, count: usize) -> Self {
        Self {
            test,
            count,
            nodes: 1,
            timeout: Duration::from_secs(60),
            victims: &[],
            variables: |_| Vec::new(),
            prefix: Box::new(|_| Vec::new()),
            launched: false,
            sizes: None,
            absent: &[],
        }
    }

    /// Tells ranks different world sizes.
    pub fn sizes(mut self, sizes: fn(usize) -> usize) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Ranks that never come.
    pub fn absent(mut self, absent: &'static [usize]) -> Self {
        self.absent = absent;
        self
    }

    /// Simulates so many nodes; ranks alternate between them.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// The world's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Ranks whose exit status does not count.
    pub fn victims(mut self, victims: &'static [usize]) -> Self {
        self.victims = victims;
        self
    }

    /// Makes the ranks detect rank and rendezvous from a launcher's variables.
    pub fn launched(mut self, variables: fn(usize) -> Vec<(&'static str, String)>) -> Self {
        self.launched = true;
        self.with(variables)
    }

    /// Sets variables of the ranks.
    pub fn with(mut self, variables: fn(usize) -> Vec<(&'static str, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Starts the ranks through other programs.
    pub fn prefix(mut self, prefix: impl Fn(usize) -> Vec<String> + 'static) -> Self {
        self.prefix = Box::new(prefix);
        self
    }

    /// Runs `body` in each rank and waits for all.
    pub fn run(self, body: impl FnOnce(World)) {
        self.meet(|world| body(world.expect("the ranks meet")));
    }

    /// [`Ranks::run`] of ranks that may not meet.
    pub fn meet(self, body: impl FnOnce(Result<World>)) {
        if let Ok(place) = std::env::var("RUSHLIGHT_TEST_PLACE") {
            let (rank, file) = place.split_once(' ').expect("rank and file");
            let rank: usize = rank.parse().expect("a rank");
            let init = Init::new().timeout(self.timeout);
            let init = match self.launched {
                true => init,
                false => init
                    .place(rank, self.sizes.map_or(self.count, |sizes| sizes(rank)))
                    .method(&format!("file://{file}")),
            };
            let init = if self.nodes > 1 { init.node(&format!("node {}", rank % self.nodes)) } else { init };
            return body(init.build());
        }
        let file =
            std::env::temp_dir().join(format!("rushlight-{}-{}", self.test.replace("::", "-"), std::process::id()));
        let _ = std::fs::remove_file(&file);
        let exe = std::env::current_exe().expect("this program");
        let start = |rank: usize| {
            let mut words = (self.prefix)(rank);
            words.push(exe.display().to_string());
            Command::new(&words[0])
                .args(&words[1..])
                .args([self.test, "--exact", "--nocapture", "--include-ignored"])
                .env("RUSHLIGHT_TEST_PLACE", format!("{rank} {}", file.display()))
                .env("RUSHLIGHT_NUM_THREADS", "1")
                // Simulated nodes share one GPU, which their ranks do not know.
                .envs((self.nodes > 1).then_some(("RUSHLIGHT_DEVICE_COLLECTIVES", "host")))
                .envs((self.variables)(rank))
                .stdout(Stdio::null())
                .spawn()
                .expect("a process")
        };
        let started: Vec<usize> = (0..self.count).filter(|rank| !self.absent.contains(rank)).collect();
        let mut children: Vec<Child> = started.iter().map(|&rank| start(rank)).collect();
        let deadline = Instant::now() + WATCHDOG;
        let mut bad = Vec::new();
        for (child, &rank) in started.iter().enumerate() {
            loop {
                match children[child].try_wait().expect("the state of a process") {
                    Some(status) => {
                        if !status.success() && !self.victims.contains(&rank) {
                            bad.push(format!("rank {rank}: {status}"));
                        }
                        break;
                    }
                    None if Instant::now() > deadline => {
                        for child in &mut children {
                            let _ = child.kill();
                            let _ = child.wait();
                        }
                        panic!("{}: rank {rank} hangs", self.test);
                    }
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        }
        let _ = std::fs::remove_file(&file);
        assert!(bad.is_empty(), "{}: {}", self.test, bad.join(", "));
    }
}
