//! One node: variables, output, failures, signals, orphans.

use crate::support::{Folder, Launcher, children, kill, numbers, runs, until};
use rushlight::prelude::*;
use rushlight_dist::ReduceOp;
use std::collections::BTreeSet;

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn ranks_have_torchruns_variables() {
    let folder = Folder::new("variables");
    let script = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE $ROLE_NAME \
        $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE \
        ${#RUSHLIGHT_JOB_SECRET} ${RUSHLIGHT_ELASTIC_BATCH-none} $((MASTER_PORT > 1024)) $((OMP_NUM_THREADS > 0)) $((OMP_NUM_THREADS == RUSHLIGHT_NUM_THREADS)) $1";
    let options = [
        "--standalone",
        "--nproc_per_node=4",
        "--max-restarts",
        "2",
        "--rdzv-id",
        "job",
        "--role",
        "trainer",
        "--elastic-batch=keep",
    ];
    let (code, out, err) = Launcher::start(&options, script, &folder).finish();
    assert_eq!(code, Some(0), "{err}");
    let expected = (0..4).map(|r| {
        format!("[rank{r}]: {r}/4 {r}/4 0/1 {r}/4 trainer 127.0.0.1 0/2 job False 64 keep 1 1 1 ").trim_end().to_owned()
    });
    assert_eq!(lines(&out), expected.collect());
}

#[test]
fn a_job_of_one_rank_looks_as_if_started_without_us() {
    let folder = Folder::new("one");
    let (code, out, err) = Launcher::start(&[], "echo $RANK/$WORLD_SIZE; echo e >&2; exit 3", &folder).finish();
    assert_eq!((code, out.as_str()), (Some(3), "0/1\n"));
    assert!(err.starts_with("e\n") && err.contains("rank 0") && err.contains("exit code 3"), "{err}");
}

#[test]
fn lines_are_not_torn() {
    let folder = Folder::new("lines");
    // Each line is written in three pieces.
    let script = "i=0; while [ $i -lt 300 ]; do printf 'begin-%s-' $i; printf '%0200d-' $i; echo end; i=$((i+1)); done; printf last";
    let (code, out, err) = Launcher::start(&["--nproc-per-node", "4"], script, &folder).finish();
    assert_eq!(code, Some(0), "{err}");
    let mut expected = BTreeSet::new();
    for rank in 0..4 {
        expected.extend((0..300).map(|i| format!("[rank{rank}]: begin-{i}-{i:0200}-end")));
        expected.insert(format!("[rank{rank}]: last"));
    }
    assert_eq!(out.lines().count(), 4 * 301);
    assert_eq!(lines(&out), expected);
}

#[test]
fn output_goes_to_files() {
    let folder = Folder::new("files");
    let dir = folder.path("logs");
    let options =
        ["--nproc-per-node=2", "--log-dir", dir.to_str().unwrap(), "--rdzv-id", "j", "-r", "0:3,1:1", "-t", "1:1"];
    let script = "echo out$RANK; echo err$RANK >&2";
    let (code, out, err) = Launcher::start(&options, script, &folder).finish();
    assert_eq!((code, out.as_str()), (Some(0), "[rank1]: out1\n"), "{err}");
    assert_eq!(err, "[rank1]: err1\n");
    let read = |name: &str| std::fs::read_to_string(dir.join("j/attempt_0").join(name)).ok();
    assert_eq!(read("0/stdout.log").as_deref(), Some("out0\n"));
    assert_eq!(read("0/stderr.log").as_deref(), Some("err0\n"));
    assert_eq!(read("1/stdout.log").as_deref(), Some("out1\n"));
    assert_eq!(read("1/stderr.log"), None);
    let (_, out, _) =
        Launcher::start(&["--nproc-per-node=3", "--local-ranks-filter", "0,2"], "echo $RANK", &folder).finish();
    assert_eq!(lines(&out), lines("[rank0]: 0\n[rank2]: 2\n"));
}

#[test]
fn the_first_rank_that_failed_is_named_and_the_others_stop() {
    let folder = Folder::new("failure");
    let script = "echo $$ > $F/pid$RANK; if [ $RANK = 2 ]; then while [ ! -e $F/pid0 ] || [ ! -e $F/pid1 ] || [ ! -e $F/pid3 ]; do sleep 0.01; done; \
        echo working; echo 'it broke' >&2; exit 7; fi; trap '' TERM; while :; do sleep 0.05; done";
    let (code, _, err) = Launcher::start(&["--nproc-per-node=4"], script, &folder).finish();
    assert_eq!(code, Some(7), "{err}");
    assert!(err.contains("rank 2 (process ") && err.contains("failed: exit code 7"), "{err}");
    assert!(err.contains("last lines:") && err.contains("    it broke"), "{err}");
    let pids = numbers(&folder.0, "pid");
    assert_eq!(pids.len(), 4);
    assert!(!pids.into_iter().any(runs));
}

#[test]
fn a_killed_rank_is_restarted_as_often_as_allowed() {
    let folder = Folder::new("restart");
    let script = "echo $RANK of attempt $TORCHELASTIC_RESTART_COUNT; [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && kill -9 $$; \
        [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && sleep 100; exit 0";
    let (code, out, err) = Launcher::start(&["--nproc-per-node=3", "--max-restarts=2"], script, &folder).finish();
    assert_eq!(code, Some(0), "{err}");
    assert!((0..3).all(|rank| out.contains(&format!("[rank{rank}]: {rank} of attempt 2"))), "{out}");
    assert!(err.contains("signal 9 (SIGKILL)") && err.contains("restart 2 of 2"), "{err}");
    let (code, _, err) = Launcher::start(&["--nproc-per-node=2", "--max-restarts=1"], "kill -9 $$", &folder).finish();
    assert_eq!(code, Some(137), "{err}");
}

#[test]
fn a_program_that_is_not_there_is_no_reason_to_restart() {
    let folder = Folder::new("absent");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rushlight"));
    command.args(["run", "--nproc-per-node=2", "--max-restarts=9", "/no/such/program"]).env("HOME", &folder.0);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(err.matches("/no/such/program cannot be started").count(), 1, "{err}");
}

/// Ranks with children, some in separate sessions; all record their process numbers and keep running.
const FAMILY: &str = "sleep 1000 & echo $! > $F/pid-child$RANK; setsid sh -c 'echo $$ > $F/pid-far$RANK; exec sleep 1000' & \
    echo $$ > $F/pid-rank$RANK; while :; do sleep 0.05; done";

fn family(launcher: &Launcher, folder: &Folder) -> Vec<i32> {
    launcher.until("the ranks start", |_| numbers(&folder.0, "pid-").len() == 6);
    let pids = numbers(&folder.0, "pid-");
    assert!(pids.iter().all(|&pid| runs(pid)));
    pids
}

fn all_gone(pids: &[i32]) {
    let left = || pids.iter().filter(|&&pid| runs(pid)).count();
    until("no process is left", || left() == 0, || format!("{} of {}", left(), pids.len()));
}

#[test]
fn a_killed_launcher_leaves_no_process() {
    let folder = Folder::new("orphans");
    let launcher = Launcher::start(&["--nproc-per-node=2"], FAMILY, &folder);
    let pids = family(&launcher, &folder);
    launcher.signal("KILL");
    all_gone(&pids);
    assert_eq!(launcher.finish().0, None);
}

#[test]
fn a_killed_agent_leaves_no_process() {
    let folder = Folder::new("agent");
    let launcher = Launcher::start(&["--nproc-per-node=2"], FAMILY, &folder);
    let pids = family(&launcher, &folder);
    let agents = children(launcher.pid());
    assert_eq!(agents.len(), 1);
    kill(agents[0], "KILL");
    let (code, _, err) = launcher.finish();
    assert_eq!(code, Some(137), "{err}");
    assert!(err.contains("agent was killed by SIGKILL"), "{err}");
    all_gone(&pids);
}

#[test]
fn signals_reach_the_ranks() {
    let folder = Folder::new("signals");
    let script = "trap 'echo saved' USR1; trap 'echo two' USR2; trap 'echo ending; exit 75' TERM; echo ready; while :; do sleep 0.02; done";
    let launcher = Launcher::start(&["--nproc-per-node=2"], script, &folder);
    let count = |l: &Launcher, text: &str| l.out().matches(text).count();
    launcher.until("the ranks start", |l| count(l, "ready") == 2);
    launcher.signal("USR1");
    launcher.until("USR1", |l| count(l, "saved") == 2);
    launcher.signal("USR2");
    launcher.until("USR2", |l| count(l, "two") == 2);
    launcher.signal("TERM");
    let (code, out, err) = launcher.finish();
    assert_eq!(code, Some(75), "{err}");
    assert_eq!(out.matches("ending").count(), 2);
    assert!(!err.contains("failed"), "{err}");
}

#[test]
fn ranks_that_saved_their_state_have_not_failed() {
    let folder = Folder::new("requeue");
    // One rank takes longer to save than the others.
    let script = "trap 'stop=1' USR1; echo ready; while [ -z \"$stop\" ]; do sleep 0.02; done; [ $RANK = 0 ] && sleep 0.5; echo saved; exit 75";
    let launcher = Launcher::start(&["--nproc-per-node=3", "--max-restarts=5"], script, &folder);
    launcher.until("the ranks start", |l| l.out().matches("ready").count() == 3);
    launcher.signal("USR1");
    let (code, out, err) = launcher.finish();
    assert_eq!((code, out.matches("saved").count()), (Some(75), 3), "{err}");
    assert!(!err.contains("failed") && err.contains("request another job"), "{err}");
}

#[test]
fn ranks_that_ignore_a_signal_are_killed_after_the_grace_period() {
    let folder = Folder::new("grace");
    let script = "trap '' INT; echo ready; while :; do sleep 0.02; done";
    let launcher = Launcher::start(&["--nproc-per-node=2", "--grace-period=0.2"], script, &folder);
    launcher.until("the ranks start", |l| l.out().matches("ready").count() == 2);
    launcher.signal("INT");
    let (code, _, err) = launcher.finish();
    assert_eq!(code, Some(137), "{err}");
}

/// The library detects the launcher, its store and its secret.
#[test]
fn ranks_meet_in_a_process_group() {
    if std::env::var_os("TORCHELASTIC_RUN_ID").is_some() {
        let world = rushlight_dist::init().expect("the ranks meet");
        let sum = Tensor::new([world.rank() as f32 + 1.0]).unwrap();
        world.all_reduce(&sum, ReduceOp::Sum).unwrap();
        let n = world.size() as f32;
        assert_eq!(sum.to_vec::<f32>().unwrap(), [n * (n + 1.0) / 2.0]);
        return;
    }
    let folder = Folder::new("group");
    let exe = std::env::current_exe().unwrap();
    let test = [exe.to_str().unwrap(), "--exact", "ranks::ranks_meet_in_a_process_group", "--nocapture"];
    let (code, out, err) = Launcher::start_program(&["--nproc-per-node=4"], &test, &folder).finish();
    assert_eq!(code, Some(0), "{out} {err}");
    assert_eq!(out.matches("test result: ok. 1 passed").count(), 4, "{out}");
}

#[test]
fn lines_have_the_prefix_that_was_asked_for_and_some_are_kept_twice() {
    let folder = Folder::new("prefix");
    let logs = folder.path("logs");
    let options = [
        "--nproc-per-node=2",
        "--role=t",
        "--log_line_prefix_template=<${role_name}${local_rank}/${rank}> ",
        "--duplicate_stdout_filters=apple,pear",
        "--rdzv-id=r",
        "--redirects=2",
        "--log-dir",
        logs.to_str().unwrap(),
    ];
    let (code, out, err) = Launcher::start(&options, "echo an apple; echo a nut", &folder).finish();
    assert_eq!(code, Some(0), "{err}");
    let expected = ["<t0/0> a nut", "<t0/0> an apple", "<t1/1> a nut", "<t1/1> an apple"];
    assert_eq!(lines(&out).into_iter().collect::<Vec<_>>(), expected);
    let kept = std::fs::read_to_string(logs.join("r/attempt_0/filtered_stdout.log")).expect("the file");
    assert_eq!(lines(&kept).into_iter().collect::<Vec<_>>(), ["<t0/0> an apple", "<t1/1> an apple"]);
}

#[test]
fn the_error_that_a_rank_leaves_is_shown() {
    let folder = Folder::new("error");
    let script =
        "printf '{\"message\": {\"message\": \"ValueError: no such layer\"}}' > \"$TORCHELASTIC_ERROR_FILE\"; exit 3";
    let (code, _, err) = Launcher::start(&["--nproc-per-node=2"], script, &folder).finish();
    assert_eq!(code, Some(3));
    assert!(err.contains("its error: ValueError: no such layer"), "{err}");
}

#[test]
fn ranks_see_one_device_each_and_chosen_signals() {
    let folder = Folder::new("virtual");
    let options = ["--nproc-per-node=2", "--virtual-local-rank", "--signals-to-handle=SIGUSR2"];
    let script =
        "trap 'echo told $RANK; exit 0' USR2; echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES; while :; do sleep 0.02; done";
    let launcher = Launcher::start(&options, script, &folder);
    launcher.until("the ranks start", |l| l.out().lines().count() == 2);
    launcher.signal("USR2");
    let (code, out, err) = launcher.finish();
    assert_eq!(code, Some(0), "{err}");
    let expected = ["[rank0]: 0 0", "[rank0]: told 0", "[rank1]: 0 1", "[rank1]: told 1"];
    assert_eq!(lines(&out).into_iter().collect::<Vec<_>>(), expected);
}
