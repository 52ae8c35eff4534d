//! A directory of runs, a server on it, and requests.

use rushlight::train::loggers::tensorboard::{EventWriter, PrCurve};
use rushlight::train::{Checkpoints, Position, SaveOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_rushlight");
/// Timeout of a test.
pub const WATCHDOG: Duration = Duration::from_secs(120);
/// A run name with markup, which must be shown as text.
pub const HOSTILE: &str = "<img src=x onerror=document.pwned=1>&'";

/// A folder that is removed at the end of a test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rushlight-view-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

/// Runs with everything that the page shows.
pub fn make_runs(root: &Path) {
    for (i, (rate, width)) in [(0.1, 64), (0.01, 128), (0.3, 256)].into_iter().enumerate() {
        let run = root.join(format!("run-{i}"));
        let mut rows = String::new();
        for step in 1..=200 {
            let loss = 0.3 + rate + 2.0 * (-f64::from(step) * rate / 20.0).exp();
            let (epoch, time) = ((step - 1) / 50, 1_700_000_000 + 1000 * i as i32 + step);
            let loss = if i == 2 && (90..100).contains(&step) { "\"NaN\"".to_owned() } else { loss.to_string() };
            rows +=
                &format!("{{\"step\":{step},\"epoch\":{epoch},\"time\":{time},\"loss\":{loss},\"val/loss\":{rate}}}\n");
        }
        write(&run.join("metrics.jsonl"), &rows);
        let config = format!(
            "{{\"hparams\":{{\"lr\":{rate},\"width\":{width},\"kind\":\"{}\"}},\"model\":{{\"parameters\":12345}}}}",
            if i == 1 { "adam" } else { "sgd" }
        );
        write(&run.join("config.json"), &config);
        if i == 0 {
            make_checkpoints(&run);
            make_models(&run);
        }
        write(&run.join("environment.json"), "{\"device\":\"cpu\",\"world_size\":4}");
        for rank in 0..4 {
            let row = |step: i32| {
                let speed = if rank == 2 { 3.0 } else { 9.0 + f64::from(rank) * 0.01 };
                let time = 1_700_000_000 + step;
                format!(
                    "{{\"step\":{step},\"time\":{time},\"system/cpu_percent\":{},\"system/steps_per_second\":{speed}}}\n",
                    300 + rank
                )
            };
            write(&run.join(format!("system/rank-{rank}.jsonl")), &(0..50).map(row).collect::<String>());
            write(&run.join(format!("logs/rank-{rank}.log")), "epoch 1/4 <b>not bold</b>\n");
        }
    }
    let mut events = EventWriter::create(root.join(HOSTILE), "", None).expect("events");
    for step in 0..100u64 {
        events.scalar("loss", 1.0 / (step + 1) as f64, step).expect("a scalar");
        if step % 10 == 0 {
            let values: Vec<f64> = (0..500).map(|i| (f64::from(i) * 0.37).sin() * (step + 1) as f64).collect();
            events.histogram("weights", &values, None, step).expect("a histogram");
            let pixels: Vec<u8> = (0..8 * 8 * 3).map(|i| (i * 7 + step as usize) as u8).collect();
            events.image("samples", &pixels, [8, 8, 3], step).expect("an image");
            let tone: Vec<f32> = (0..800).map(|i| (i as f32 * 0.1 * (step + 1) as f32).sin()).collect();
            events.audio("tone", &tone, 1, 8000, step).expect("a sound");
            let labels: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
            let predictions: Vec<f64> = labels.iter().zip(0..).map(|(l, i)| 0.3 * l + 0.007 * f64::from(i)).collect();
            let curve = PrCurve::new(&labels, &predictions, 50, None).expect("a curve");
            events.pr_curve("cats", &curve, step).expect("a curve");
            events.text("note", "<script>document.pwned = 1</script> plain", step).expect("a text");
        }
    }
}

/// An exported model, and a file that is none.
fn make_models(run: &Path) {
    use rushlight::nn::{AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, Module, ReLU, Sequential};
    let block = |inputs: usize| {
        let conv = Conv2d::builder(inputs, 8, 3).padding(1).build().expect("a layer");
        Sequential::from((conv, BatchNorm2d::new(8).expect("a layer"), ReLU))
    };
    let head = (AdaptiveAvgPool2d::new(1), Flatten::default(), Linear::new(8, 5).expect("a layer"));
    let named = |net: Sequential, name: &str, layer: Sequential| net.add_module(name, layer).expect("a name");
    let net = named(named(Sequential::new(), "stem", block(3)), "body", block(8));
    let net = named(net, "head", Sequential::from(head));
    net.eval();
    let x = rushlight::Tensor::zeros([2, 3, 16, 16]).expect("a tensor");
    let model = rushlight::graph::Export::of(&net).input("image", &x).dynamic(0, "batch").run(&net).expect("a program");
    model.save(run.join("best.rlm")).expect("a file");
    write(&run.join("broken.rlm"), "PK <script>document.pwned = 1</script>");
}

/// Two checkpoints of the Trainer's form with their metrics, and one with a name of Lightning's.
fn make_checkpoints(run: &Path) {
    let mut checkpoints =
        Checkpoints::builder(run.join("checkpoints")).background(false).build().expect("a folder of checkpoints");
    let layer = rushlight::nn::Linear::new(2, 1).expect("a layer");
    for (step, metric) in [(50, 0.5), (100, 0.25)] {
        let position = Position { epoch: step / 50, step };
        checkpoints.save_with(position, &[("model", &layer)], SaveOptions::new().metric(metric)).expect("a checkpoint");
    }
    write(&run.join("checkpoints/epoch=3-step=150-val_loss=0.125.ckpt"), "x");
}

/// A running `rushlight ui`.
pub struct Server {
    child: Child,
    pub port: u16,
    /// Its start message.
    pub said: String,
}

impl Server {
    /// Starts a server that needs no token, unless the variables have one: most tests are about other things.
    pub fn start(root: &Path, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let open = variables.iter().all(|(name, _)| *name != "RUSHLIGHT_UI_TOKEN");
        let more = if open { &["--no-token"][..] } else { &[] };
        Self::start_as_given(root, &[options, more].concat(), variables)
    }

    /// Starts a server with these options only, at a free port.
    pub fn start_as_given(root: &Path, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("ui").args(["--port", "0"]).args(options).arg(root).env_remove("RUSHLIGHT_UI_TOKEN");
        command.env_remove("SSH_CONNECTION").envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the server");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains("Ctrl-C") {
            let read = out.read_line(&mut said).expect("a line");
            assert!(read > 0, "the server ended: {said}");
        }
        // Keeps reading, so that it never writes to a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { child, port, said }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
        stream
    }

    /// Sends bytes and reads the whole answer.
    pub fn send(&self, request: &[u8]) -> (String, Vec<u8>) {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let mut buffer = [0u8; 65_536];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            bytes.extend(&buffer[..n]);
        }
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
        let body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        (String::from_utf8_lossy(&bytes[..end]).into_owned(), body)
    }

    /// The head and the body of an answer to a GET.
    pub fn get(&self, target: &str, headers: &str) -> (String, Vec<u8>) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())
    }

    pub fn status(&self, target: &str, headers: &str) -> u16 {
        let head = self.get(target, headers).0;
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub fn json(&self, target: &str) -> serde_json::Value {
        let (head, body) = self.get(target, "");
        assert!(head.contains(" 200 "), "{target}: {head}");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// The runs, when all have been read.
    pub fn runs(&self) -> serde_json::Value {
        until("the runs are read", || {
            let runs = self.json("/api/runs");
            (runs["loaded"] == true).then_some(runs)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until there is an answer.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
