//! Checkpoints of several ranks: threads or processes that save one checkpoint together.
#![cfg(target_os = "linux")]

use rushlight_core::Result;
use rushlight_core::rng::manual_seed;
use rushlight_dist::store::{HashStore, Store};
use rushlight_dist::{DistributedDataParallel, Init, World};
use rushlight_nn::{Forward, Linear, Module};
use rushlight_optim::{AdamW, Optimizer};
use rushlight_tensor::state::{Stateful, Value};
use rushlight_tensor::{Reduction, Tensor};
use rushlight_train::{Best, Checkpoints, Position, SaveOptions, load_checkpoint};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rushlight-sharded-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Runs a body as each rank of a world of threads.
fn ranks(size: usize, body: impl Fn(&World) + Sync) {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (store, body) = (store.clone(), &body);
            scope.spawn(move || {
                let init = Init::new().place(rank, size).node(&format!("node {rank}")).store(store);
                body(&init.timeout(Duration::from_secs(60)).build().expect("the ranks meet"));
            });
        }
    });
}

/// A part that is one number.
#[derive(Default)]
struct Number(i64);

impl Stateful for Number {
    fn state(&self) -> Result<Value> {
        Ok(self.0.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        self.0 = state.as_int()?;
        Ok(())
    }
}

fn model(value: f64) -> Linear {
    let layer = Linear::new(30, 20).unwrap();
    for p in layer.parameters() {
        rushlight_nn::init::constant_(&p, value).unwrap();
    }
    layer
}

fn is_filled(layer: &Linear, value: f32) -> bool {
    layer.parameters().iter().all(|p| p.to_vec::<f32>().unwrap().iter().all(|v| *v == value))
}

#[test]
fn a_checkpoint_of_three_ranks_is_restored_by_any_number() {
    let directory = scratch("sizes");
    for background in [false, true] {
        let step = 4 + u64::from(background);
        ranks(3, |world| {
            let checkpoints = Checkpoints::builder(&directory).world(world).background(background);
            let mut checkpoints = checkpoints.build().unwrap();
            let layer = model(step as f64);
            let own = Number(100 + world.rank() as i64);
            let own: [(&str, &dyn Stateful); 1] = [("own", &own)];
            let options = SaveOptions::new().metric(0.5).sharded(&own);
            checkpoints.save_with(Position { epoch: 1, step }, &[("model", &layer)], options).unwrap();
            // Later changes of the tensors are not saved.
            layer.parameters().iter().for_each(|p| rushlight_nn::init::zeros_(p).unwrap());
            checkpoints.finish().unwrap();
        });
        let folder = directory.join(format!("checkpoint-{step:012}"));
        let files: Vec<u64> =
            std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(files.len(), 4, "three shards and a manifest");
        for size in [3, 2, 1, 5] {
            ranks(size, |world| {
                let mut checkpoints = Checkpoints::builder(&directory).world(world).build().unwrap();
                let mut layer = model(0.0);
                let restored = checkpoints.restore(&mut [("model", &mut layer)]).unwrap().unwrap();
                assert_eq!((restored.position, restored.world_size), (Position { epoch: 1, step }, 3));
                assert_eq!((restored.metric, restored.path), (Some(0.5), folder.clone()));
                assert!(is_filled(&layer, step as f32));
            });
            ranks(size, |world| {
                let mut checkpoints = Checkpoints::builder(&directory).world(world).build().unwrap();
                let restored = checkpoints.restore(&mut []).unwrap().unwrap();
                let mut own = Number::default();
                let loaded = restored.load_sharded("own", &mut own);
                if size == 3 {
                    loaded.unwrap();
                    assert_eq!(own.0, 100 + world.rank() as i64);
                } else {
                    let message = loaded.unwrap_err().to_string();
                    assert!(message.contains("3 ranks saved") && message.contains("Restored::shards"), "{message}");
                }
                let all: Vec<i64> = restored.shards("own").unwrap().iter().map(|v| v.as_int().unwrap()).collect();
                assert_eq!(all, [100, 101, 102]);
            });
        }
        let whole = load_checkpoint(&folder).unwrap();
        assert_eq!(whole.get("model").unwrap().to_state_dict().unwrap()["weight"].shape(), [20, 30]);
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn shards_without_a_manifest_are_no_checkpoint() {
    let directory = scratch("manifest");
    let save = |step: u64| {
        ranks(2, |world| {
            let mut checkpoints = Checkpoints::builder(&directory).world(world).build().unwrap();
            checkpoints.save(Position { epoch: 0, step }, &[("model", &model(step as f64))]).unwrap();
        });
    };
    save(1);
    save(2);
    // The state of a job killed just before the end of its second save.
    std::fs::remove_file(directory.join("checkpoint-000000000002/manifest.json")).unwrap();
    let restored_step = || {
        let found = std::sync::Mutex::new(Vec::new());
        ranks(2, |world| {
            let mut checkpoints = Checkpoints::builder(&directory).world(world).build().unwrap();
            let mut layer = model(0.0);
            let restored = checkpoints.restore(&mut [("model", &mut layer)]).unwrap().unwrap();
            assert!(is_filled(&layer, restored.position.step as f32));
            found.lock().unwrap().push((restored.position.step, restored.skipped.len()));
        });
        let found = found.into_inner().unwrap();
        assert_eq!(found[0], found[1], "all ranks restore the same");
        found[0]
    };
    assert_eq!(restored_step(), (1, 0));
    assert!(directory.join("checkpoint-000000000002").exists(), "reading removes nothing: a job may be at it");
    // A flipped bit, as of a failing disk, is detected by the rank that reads it.
    save(2);
    let shard = std::fs::read_dir(directory.join("checkpoint-000000000002")).unwrap().flatten().map(|e| e.path());
    let shard = shard.filter(|p| p.to_string_lossy().contains("shard-00001")).max().unwrap();
    let mut bytes = std::fs::read(&shard).unwrap();
    let value = bytes.windows(8).position(|w| w == [0, 0, 0, 64, 0, 0, 0, 64]).expect("numbers of value 2");
    bytes[value] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    assert_eq!(restored_step(), (1, 1));
    assert!(directory.join("checkpoint-000000000002.damaged").exists());
    // The same step is saved again over an older one of that step.
    save(2);
    save(2);
    assert_eq!(restored_step(), (2, 0));
    assert_eq!(std::fs::read_dir(directory.join("checkpoint-000000000002")).unwrap().count(), 3);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let steps = |directory: &Path| -> Vec<u64> {
        let checkpoints = Checkpoints::new(directory).unwrap();
        let name = |p: &PathBuf| p.file_stem().unwrap().to_string_lossy().replace("checkpoint-", "").parse().unwrap();
        checkpoints.list().unwrap().iter().map(name).collect()
    };
    let losses = [0.9, 0.2, f64::NAN, 0.3, 0.2, 0.8, f64::INFINITY, 0.7];
    for (best, size, expected) in
        [(Best::Lowest, 1, [2, 5, 7, 8]), (Best::Lowest, 2, [2, 5, 7, 8]), (Best::Highest, 2, [1, 6, 7, 8])]
    {
        let directory = scratch(&format!("best-{best:?}-{size}"));
        ranks(size, |world| {
            let checkpoints = Checkpoints::builder(&directory).world(world).keep(2).keep_best(2, best);
            let mut checkpoints = checkpoints.build().unwrap();
            for (i, loss) in losses.into_iter().enumerate() {
                // Infinity is the maximum, but must not be kept as the best.
                if best == Best::Highest && loss.is_infinite() {
                    let position = Position { epoch: 0, step: i as u64 + 1 };
                    checkpoints.save(position, &[("number", &Number(3))]).unwrap();
                    continue;
                }
                let position = Position { epoch: 0, step: i as u64 + 1 };
                let options = SaveOptions::new().metric(loss);
                checkpoints.save_with(position, &[("number", &Number(3))], options).unwrap();
            }
        });
        assert_eq!(steps(&directory), expected, "{best:?} of {size} ranks");
        let found = Checkpoints::new(&directory).unwrap().best(best).unwrap().unwrap();
        assert!(found.to_string_lossy().contains(if best == Best::Lowest { "0002" } else { "0001" }));
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_failed_save_leaves_the_one_before_on_every_rank() {
    let directory = scratch("failing");
    ranks(2, |world| {
        let mut checkpoints =
            Checkpoints::builder(&directory).world(world).background(true).tolerate(1).build().unwrap();
        let save = |checkpoints: &mut Checkpoints, step: u64| {
            checkpoints.save(Position { epoch: 0, step }, &[("number", &Number(step as i64))])
        };
        save(&mut checkpoints, 1).unwrap();
        checkpoints.finish().unwrap();
        world.barrier().unwrap();
        if world.rank() == 0 {
            // A file in place of the directory: no rank can write its shard.
            std::fs::write(directory.join("checkpoint-000000000002"), b"").unwrap();
        }
        world.barrier().unwrap();
        save(&mut checkpoints, 2).unwrap();
        let message = checkpoints.finish().unwrap_err().to_string();
        assert!(message.contains("rank 0") && message.contains("cannot make"), "{message}");
        let mut number = Number::default();
        assert_eq!(checkpoints.restore(&mut [("number", &mut number)]).unwrap().unwrap().position.step, 1);
        // One failure is tolerated, the next is not.
        save(&mut checkpoints, 2).unwrap();
        save(&mut checkpoints, 2).unwrap();
        assert!(save(&mut checkpoints, 3).is_err());
        save(&mut checkpoints, 3).unwrap();
        checkpoints.finish().unwrap();
        // A part that is not the same on all ranks is named.
        let odd = Linear::new(2 + world.rank(), 2).unwrap();
        checkpoints.save(Position { epoch: 0, step: 4 }, &[("model", &odd)]).unwrap();
        let message = checkpoints.finish().unwrap_err().to_string();
        assert!(message.contains("rank 1's state") && message.contains("sharded"), "{message}");
    });
    std::fs::remove_dir_all(directory).unwrap();
}

/// Not a test: saves on a disk that becomes full.
#[test]
fn child_on_a_small_disk() {
    let Ok(directory) = std::env::var("RUSHLIGHT_TEST_SMALL_DISK") else { return };
    ranks(2, |world| {
        let mut checkpoints = Checkpoints::builder(&directory).world(world).keep(9).build().unwrap();
        let layer = Linear::new(300, 300).unwrap();
        let save =
            |checkpoints: &mut Checkpoints, step| checkpoints.save(Position { epoch: 0, step }, &[("model", &layer)]);
        save(&mut checkpoints, 1).unwrap();
        let message = save(&mut checkpoints, 2).unwrap_err().to_string();
        assert!(message.contains("No space left"), "{message}");
        let mut layer = Linear::new(300, 300).unwrap();
        assert_eq!(checkpoints.restore(&mut [("model", &mut layer)]).unwrap().unwrap().position.step, 1);
    });
    // The files of the failed save are gone.
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn on_a_full_disk_the_previous_checkpoint_stands() {
    let directory = scratch("full");
    let script = "mount -t tmpfs -o size=600k none \"$1\" && exec \"$2\" --exact child_on_a_small_disk";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.arg(&directory).arg(std::env::current_exe().unwrap());
        command
    };
    if !unshare("mount -t tmpfs none \"$1\"").stderr(Stdio::null()).status().is_ok_and(|s| s.success()) {
        let reason = "no file system of its own for a test here: unshare or mount is not allowed";
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        eprintln!("skipped: {reason}");
        return;
    }
    let status = unshare(script).env("RUSHLIGHT_TEST_SMALL_DISK", &directory).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    std::fs::remove_dir_all(directory).unwrap();
}

/// Not a test: a rank of the job that is killed again and again.
#[test]
fn child_rank() {
    let Ok(directory) = std::env::var("RUSHLIGHT_TEST_RANK_DIRECTORY") else { return };
    let directory = Path::new(&directory);
    manual_seed(5);
    let world = rushlight_dist::init().unwrap();
    let (x, y) = (Tensor::randn([64, 8]).unwrap(), Tensor::randn([64, 1]).unwrap());
    let mut model = DistributedDataParallel::new(Linear::new(8, 1).unwrap(), world.group().clone()).unwrap();
    let mut optimizer = AdamW::new(model.parameters(), 1e-2).unwrap();
    let mut checkpoints = Checkpoints::builder(directory).world(&world).background(true).keep(2).build().unwrap();
    let restored = checkpoints.restore(&mut [("model", &mut model), ("optimizer", &mut optimizer)]).unwrap();
    let first = restored.map_or(0, |r| r.position.step);
    for step in first..30 {
        let at = ((step as usize * 2 + world.rank()) % 8) as isize * 8;
        let (x, y) = (x.narrow(0, at, 8).unwrap(), y.narrow(0, at, 8).unwrap());
        // Numbers of the generator that every checkpoint must restore.
        let noise = Tensor::randn([8, 1]).unwrap();
        optimizer.zero_grad();
        let loss = model.forward(&x).unwrap().add(&noise).unwrap().mse_loss(&y, Reduction::Mean).unwrap();
        loss.backward().unwrap();
        optimizer.step().unwrap();
        let position = Position { epoch: 0, step: step + 1 };
        checkpoints.save(position, &[("model", &model), ("optimizer", &optimizer)]).unwrap();
    }
    checkpoints.finish().unwrap();
    let bits: Vec<u8> = model
        .parameters()
        .iter()
        .flat_map(|p| p.to_vec::<f32>().unwrap())
        .flat_map(|v| v.to_bits().to_le_bytes())
        .collect();
    std::fs::write(directory.join(format!("weights-{}", world.rank())), bits).unwrap();
}

fn start_ranks(directory: &Path) -> Vec<Child> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_rank"])
            .env("RUSHLIGHT_TEST_RANK_DIRECTORY", directory)
            .envs([("RANK", rank.to_string()), ("WORLD_SIZE", "2".into()), ("MASTER_PORT", port.to_string())])
            .envs([("MASTER_ADDR", "127.0.0.1"), ("RUSHLIGHT_NUM_THREADS", "1"), ("RUSHLIGHT_JOB_SECRET", "test")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    (0..2).map(start).collect()
}

/// Whether all succeeded before the deadline; the rest are killed.
fn finish(mut children: Vec<Child>, deadline: Instant) -> bool {
    let mut ends = vec![None; children.len()];
    while Instant::now() < deadline && ends.iter().any(Option::is_none) {
        for (end, child) in ends.iter_mut().zip(&mut children) {
            *end = end.or(child.try_wait().unwrap().map(|status| status.success()));
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
    ends.iter().all(|end| *end == Some(true))
}

#[test]
fn a_job_killed_in_the_middle_of_saves_ends_with_the_same_weights() {
    let (whole, broken) = (scratch("whole"), scratch("broken"));
    assert!(finish(start_ranks(&whole), Instant::now() + Duration::from_secs(60)));
    let expected = std::fs::read(whole.join("weights-0")).unwrap();
    assert_eq!(std::fs::read(whole.join("weights-1")).unwrap(), expected);
    let mut kills = 0u64;
    let start = Instant::now();
    // Every attempt has a little more time than the one before, by irregular amounts: kills fall on any moment of a
    // save.
    while !finish(start_ranks(&broken), Instant::now() + Duration::from_millis(40 + 13 * kills + 7 * (kills % 3))) {
        kills += 1;
        assert!(start.elapsed() < Duration::from_secs(90), "no end after {kills} kills");
    }
    for rank in 0..2 {
        assert_eq!(std::fs::read(broken.join(format!("weights-{rank}"))).unwrap(), expected, "after {kills} kills");
    }
    for directory in [whole, broken] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}
