//! The example programs as two ranks; their code has no distributed logic besides the library's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the ranks of a program may take before they are killed.
const WATCHDOG: Duration = Duration::from_secs(120);

/// An example built with this test; skipped if missing, but an error in CI.
fn example(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().expect("this program");
    let file = own.parent().and_then(Path::parent).expect("a build directory").join("examples").join(name);
    if !file.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} is missing: build the examples", file.display());
        println!("skipped: {} is not built", file.display());
    }
    file.exists().then_some(file)
}

/// Runs an example as two ranks and returns the output of each.
fn run(name: &str, arguments: &[&str]) -> Option<[String; 2]> {
    let program = example(name)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    let folder = std::env::temp_dir().join(format!("rushlight-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("text"), (0..400).map(|i| format!("{i} ")).collect::<String>()).expect("a text");
    let start = |rank: usize| {
        let output = std::fs::File::create(folder.join(format!("rank{rank}"))).expect("a file");
        Command::new(&program)
            .args(arguments)
            .current_dir(&folder)
            .envs([("RANK", rank.to_string()), ("LOCAL_RANK", rank.to_string()), ("MASTER_PORT", port.to_string())])
            .envs([("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")])
            .envs([("RUSHLIGHT_JOB_SECRET", "of this test"), ("RUSHLIGHT_NUM_THREADS", "1")])
            .stdin(Stdio::null())
            .stderr(output.try_clone().expect("a file"))
            .stdout(output)
            .spawn()
            .expect("a process")
    };
    let mut children = [0, 1].map(start);
    let deadline = Instant::now() + WATCHDOG;
    let wait = |child: &mut Child| loop {
        match child.try_wait().expect("the state of a process") {
            Some(status) => break Some(status.success()),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let ends = [0, 1].map(|rank| wait(&mut children[rank]));
    let texts = [0, 1].map(|rank| std::fs::read_to_string(folder.join(format!("rank{rank}"))).unwrap_or_default());
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(ends, [Some(true); 2], "{name}:\n{}\n{}", texts[0], texts[1]);
    Some(texts)
}

/// Both ranks succeed, and only the first reports the epochs.
fn trains(name: &str, arguments: &[&str], says: &str) {
    if let Some([first, second]) = run(name, arguments) {
        assert!(first.contains(says) && !second.contains(says), "{name}:\n{first}\n{second}");
    }
}

#[test]
fn transformer_on_two_ranks() {
    let small = ["--epochs", "1", "--samples", "4", "--batch-size", "2", "--threads", "1", "--runs", "-"];
    trains("transformer", &small, "epoch 1/1");
}

#[test]
fn cifar10_on_two_ranks() {
    let small = ["--synthetic", "32", "--epochs", "1", "--batch-size", "8", "--threads", "1", "--runs", "-"];
    trains("cifar10", &small, "epoch 1/1");
}

#[test]
fn chargpt_on_two_ranks() {
    let shape = ["--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--block-size", "16", "--max-epochs", "1"];
    let rest = ["--text", "text", "--generate", "4", "--prompt", "1", "--threads", "1", "--runs", "-"];
    trains("chargpt", &[&shape[..], &rest].concat(), "epoch 1/1");
}

#[test]
fn snapshot_on_two_ranks() {
    trains("snapshot", &["2", "1", "--threads", "1"], "Epoch 1 | Training snapshot saved");
}
