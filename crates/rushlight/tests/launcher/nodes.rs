//! Several launchers as the nodes of one job, on one machine.

use crate::support::{Folder, Launcher, children, free_port, kill, numbers, runs};

fn endpoint() -> String {
    format!("127.0.0.1:{}", free_port())
}

#[test]
fn two_nodes_form_one_world() {
    let folder = Folder::new("nodes");
    let endpoint = endpoint();
    let options =
        ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=7", "--rdzv-endpoint", &endpoint];
    let script =
        "echo node $GROUP_RANK/$GROUP_WORLD_SIZE world $WORLD_SIZE local $LOCAL_RANK role $ROLE_RANK/$ROLE_WORLD_SIZE";
    let first = Launcher::start(&options, script, &folder);
    let second = Launcher::start(&options, script, &folder);
    let ((a, out_a, err_a), (b, out_b, err_b)) = (first.finish(), second.finish());
    assert_eq!((a, b), (Some(0), Some(0)), "{err_a} {err_b}");
    let mut lines: Vec<String> = [out_a, out_b].concat().lines().map(str::to_owned).collect();
    lines.sort();
    let expected: Vec<String> =
        (0..4).map(|r| format!("[rank{r}]: node {}/2 world 4 local {} role {r}/4", r / 2, r % 2)).collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_fixed_order_is_kept() {
    let folder = Folder::new("fixed");
    let port = free_port().to_string();
    let node = |rank: &'static str| {
        let options = ["--nnodes=2", "--master-addr=127.0.0.1", "--node-rank", rank, "--master-port", &port];
        Launcher::start(&options, "echo $RANK $GROUP_RANK $MASTER_ADDR:$MASTER_PORT", &folder)
    };
    // The second node starts first.
    let second = node("1");
    let first = node("0");
    let ((a, out_a, err_a), (b, out_b, err_b)) = (first.finish(), second.finish());
    assert_eq!((a, b), (Some(0), Some(0)), "{err_a} {err_b}");
    assert_eq!(out_a, format!("[rank0]: 0 0 127.0.0.1:{port}\n"));
    assert_eq!(out_b, format!("[rank1]: 1 1 127.0.0.1:{port}\n"));
}

#[test]
fn a_failure_on_one_node_ends_the_other() {
    let folder = Folder::new("spread");
    let endpoint = endpoint();
    let options = ["--nnodes=2", "--rdzv-endpoint", &endpoint];
    let script = "echo $$ > $F/pid$RANK; while [ ! -e $F/pid0 ] || [ ! -e $F/pid1 ]; do sleep 0.01; done; [ $RANK = 1 ] && exit 9; while :; do sleep 0.05; done";
    let (first, second) = (Launcher::start(&options, script, &folder), Launcher::start(&options, script, &folder));
    let ((a, _, err_a), (b, _, err_b)) = (first.finish(), second.finish());
    assert_eq!((a, b), (Some(9), Some(9)), "{err_a} {err_b}");
    assert!(err_a.contains("failed: exit code 9") && err_b.contains("failed: exit code 9"), "{err_a} {err_b}");
    assert!(!numbers(&folder.0, "pid").into_iter().any(runs));
}

/// A terminal that takes no output, as after Ctrl-S, does not keep a node's failure from the others.
#[test]
fn a_stalled_terminal_does_not_hold_a_failure_back() {
    let folder = Folder::new("stalled");
    let endpoint = endpoint();
    let options = ["--nnodes=2", "--rdzv-endpoint", &endpoint];
    let first = Launcher::start(&options, "while :; do sleep 0.05; done", &folder);
    // Fails when what it writes goes nowhere any more.
    let script = "(while :; do printf '%1000d\\n' 0; echo >> $F/written; done) & \
        lines() { cat $F/written 2> /dev/null | wc -l; }; \
        while before=$(lines); sleep 0.3; [ $before = 0 ] || [ $before != $(lines) ]; do :; done; exit 9";
    let second = Launcher::start_stalled(&options, script, &folder);
    let ((a, _, err), (b, ..)) = (first.finish(), second.finish());
    assert_eq!((a, b), (Some(9), Some(9)), "{err}");
    assert!(err.contains("failed: exit code 9"), "{err}");
}

#[test]
fn an_elastic_job_goes_on_without_a_lost_node_and_takes_in_a_new_one() {
    let folder = Folder::new("elastic");
    let endpoint = endpoint();
    let options =
        ["--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=1", "--rdzv-id=e", "--rdzv-endpoint", &endpoint];
    // Ranks run until they are told to end. The first to find the file `fail` fails.
    let script = "echo world $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; echo $$ > $F/pid$$; \
        while [ ! -e $F/finish ]; do if mv $F/fail $F/failed 2> /dev/null; then exit 5; fi; sleep 0.02; done";
    let first = Launcher::start(&options, script, &folder);
    first.until("the store is there", |_| std::net::TcpStream::connect(&endpoint).is_ok());
    let second = Launcher::start(&options, script, &folder);
    let count = |l: &Launcher, text: &str| l.out().matches(text).count();
    second.until("a world of two nodes", |l| count(l, "world 4 restart 0") == 2);
    first.until("a world of two nodes", |l| count(l, "world 4 restart 0") == 2);
    // A node is lost with all its processes: not a failure.
    children(second.pid()).into_iter().for_each(|agent| kill(agent, "KILL"));
    second.signal("KILL");
    first.until("a world of one node", |l| count(l, "world 2 restart 0") == 2);
    // A new node takes part at once: not a failure either.
    let third = Launcher::start(&options, script, &folder);
    third.until("the job grows", |l| count(l, "world 4 restart 0") == 2);
    first.until("the job grows", |l| count(l, "world 4 restart 0") == 4);
    folder.touch("fail");
    first.until("a world of two nodes again", |l| count(l, "world 4 restart 1") == 2);
    third.until("a world of two nodes again", |l| count(l, "world 4 restart 1") == 2);
    folder.touch("finish");
    let ((a, _, err_a), (c, _, err_c)) = (first.finish(), third.finish());
    assert_eq!((a, c), (Some(0), Some(0)), "{err_a} {err_c}");
    assert!(err_a.contains("was lost; going on") && err_a.contains("go on with 2 nodes"), "{err_a}");
    assert!(!numbers(&folder.0, "pid").into_iter().any(runs));
}

#[test]
fn too_few_nodes_are_waited_for_no_longer_than_told() {
    let folder = Folder::new("few");
    let endpoint = endpoint();
    let options = ["--nnodes=2", "--rdzv-conf=join_timeout=0.3", "--rdzv-endpoint", &endpoint];
    let (code, _, err) = Launcher::start(&options, "true", &folder).finish();
    assert_eq!(code, Some(1));
    assert!(err.contains("1 of 2 nodes came within 0.3 s"), "{err}");
}

#[test]
fn a_launcher_that_is_left_takes_over_the_rendezvous() {
    let folder = Folder::new("host");
    let endpoint = endpoint();
    let options = ["--nnodes=2", "--rdzv-endpoint", &endpoint];
    let script = "echo world $WORLD_SIZE; echo $$ > $F/pid$$; while [ ! -e $F/finish ]; do sleep 0.05; done";
    let first = Launcher::start(&options, script, &folder);
    first.until("the store is there", |_| std::net::TcpStream::connect(&endpoint).is_ok());
    let second = Launcher::start(&options, script, &folder);
    second.until("the ranks start", |_| numbers(&folder.0, "pid").len() == 2);
    first.signal("KILL");
    second.until("it joins again", |l| l.err().contains("the rendezvous is held here now"));
    second.until("no rank is left", |_| !numbers(&folder.0, "pid").into_iter().any(runs));
    let third = Launcher::start(&options, script, &folder);
    second.until("a new world", |l| l.out().matches("world 2").count() == 2);
    folder.touch("finish");
    let ((b, _, err_b), (c, _, err_c)) = (second.finish(), third.finish());
    assert_eq!((b, c), (Some(0), Some(0)), "{err_b} {err_c}");
    assert!(!numbers(&folder.0, "pid").into_iter().any(runs));
}

#[test]
fn a_node_ends_when_the_rendezvous_does_not_come_back() {
    let folder = Folder::new("gone");
    let endpoint = endpoint();
    let options = |conf| ["--nnodes=2", "--rdzv-endpoint", &endpoint, "--rdzv-conf", conf].map(str::to_owned);
    let start = |conf| {
        let options = options(conf);
        let script = "echo $$ > $F/pid$RANK; while :; do sleep 0.05; done";
        Launcher::start(&options.each_ref().map(String::as_str), script, &folder)
    };
    let first = start("is_host=1");
    let second = start("is_host=0,join_timeout=5");
    second.until("the ranks start", |_| numbers(&folder.0, "pid").len() == 2);
    first.signal("KILL");
    let (code, _, err) = second.finish();
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("is gone or unreachable") && err.contains("did not come back"), "{err}");
    first.until("no rank is left", |_| !numbers(&folder.0, "pid").into_iter().any(runs));
}
