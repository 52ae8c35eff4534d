use super::*;

fn parse(line: &str) -> Result<Options> {
    parse_with(line, |_| None)
}

fn parse_with(line: &str, env: impl Fn(&str) -> Option<String>) -> Result<Options> {
    let words = std::iter::once("run").chain(line.split_whitespace());
    read(&command().try_get_matches_from(words).expect("options that are known"), env)
}

#[test]
fn torchrun_command_lines() {
    let o = parse(
        "--nnodes=2 --nproc_per_node=4 --rdzv_id=77 --rdzv_backend=c10d --rdzv_endpoint=host:29400 train.py --lr 1 -m x",
    )
    .unwrap();
    assert_eq!((o.nnodes, o.nproc), (Some((2, 2)), Some(Nproc::Count(4))));
    assert_eq!(o.endpoint, Some(("host".into(), Some(29400))));
    assert_eq!(o.program, ["train.py", "--lr", "1", "-m", "x"]);
    assert!(!o.module && !o.fixed_order);
    let o = parse("--standalone --nproc-per-node gpu -m pkg.train --nnodes 3").unwrap();
    assert!(o.module && o.standalone);
    assert_eq!(o.program, ["pkg.train", "--nnodes", "3"]);
    let o = parse("--nnodes 1:4 -r 3 -t 0:1,1:2 --max_restarts 3 --node_rank 2 --rdzv-backend static a").unwrap();
    assert_eq!((o.nnodes, o.max_restarts, o.node_rank), (Some((1, 4)), 3, Some(2)));
    assert_eq!((o.redirects.of(5), o.tee.of(0), o.tee.of(1), o.tee.of(2)), (3, 1, 2, 0));
}

#[test]
fn a_policy_for_changed_worlds() {
    assert_eq!(parse("a").unwrap().elastic_batch, None);
    assert_eq!(parse("--elastic-batch keep a").unwrap().elastic_batch.as_deref(), Some("keep"));
    let by_variable = parse_with("a", |name| (name == "PET_ELASTIC_BATCH").then(|| "scale".into())).unwrap();
    assert_eq!(by_variable.elastic_batch.as_deref(), Some("scale"));
    let wrong = parse("--elastic_batch half a").unwrap_err().to_string();
    assert!(wrong.contains("--elastic-batch half") && wrong.contains("keep"), "{wrong}");
}

#[test]
fn torchruns_further_options() {
    let o = parse(
        "--log-dir d --duplicate_stdout_filters a,,b,c --log_line_prefix_template -${rank} --signals-to-handle SIGTERM,usr1 \
         --shutdown_timeout 7 --virtual-local-rank --numa-binding core-complex --rdzv-conf is_host=1,join_timeout=5 --event-log-handler null a",
    )
    .unwrap();
    assert_eq!(o.duplicates, [vec!["a,b".to_owned(), "c".into()], vec![]]);
    assert_eq!(o.prefix.as_deref(), Some("-${rank}"));
    assert_eq!(o.signals, [libc::SIGTERM, libc::SIGUSR1]);
    assert_eq!((o.grace, o.stop_time), (Duration::from_secs(7), Duration::from_secs(7)));
    assert!(o.virtual_local_rank && o.is_host == Some(true) && o.binding == Binding::CoreComplex);
    let o = parse_with("a", |name| (name == "TORCH_ELASTIC_SHUTDOWN_TIMEOUT").then(|| "9".into())).unwrap();
    assert_eq!(o.grace, Duration::from_secs(9));
}

#[test]
fn variables_fill_what_is_not_given() {
    let env = |name: &str| match name {
        "PET_NNODES" => Some("3".to_owned()),
        "PET_NPROC_PER_NODE" => Some("2".to_owned()),
        "PET_STANDALONE" => Some("0".to_owned()),
        _ => None,
    };
    let o = parse_with("--nproc-per-node 8 a", env).unwrap();
    assert_eq!((o.nnodes, o.nproc, o.standalone), (Some((3, 3)), Some(Nproc::Count(8)), false));
}

#[test]
fn endpoints() {
    assert_eq!(endpoint("h").unwrap(), ("h".into(), None));
    assert_eq!(endpoint("[fe80::1]:5").unwrap(), ("fe80::1".into(), Some(5)));
    assert_eq!(endpoint("fe80::1").unwrap(), ("fe80::1".into(), None));
    assert_eq!(endpoint("h:0").unwrap(), ("h".into(), None));
    for bad in ["", ":5", "h:x", "h:99999", "[h"] {
        assert!(endpoint(bad).is_err(), "{bad}");
    }
}

#[test]
fn mistakes_are_named() {
    for (line, part) in [
        ("--nproc-per-node 0 a", "--nproc-per-node 0"),
        ("--nproc-per-node 1000000 a", "from 1 to 4096"),
        ("--nnodes 4:2 a", "--nnodes 4:2"),
        ("--nnodes 2 --node-rank 2 a", "--node-rank 2"),
        ("--standalone --nnodes 2 a", "--standalone"),
        ("--rdzv-backend etcd a", "etcd"),
        ("--redirects 4 a", "--redirects 4"),
        ("--rdzv-conf frob=1 a", "frob"),
        ("--master-port 70000 a", "70000"),
        ("-m --no-python a", "--no-python"),
        ("--frobnicate a", "no option --frobnicate"),
        ("--nnodes 1 -x a", "no option -x"),
        ("--monitor-interval -1 a", "--monitor-interval"),
        ("--signals-to-handle SIGTERM,SIGKILL a", "SIGKILL"),
        ("--event-log-handler console a", "--event-log-handler console"),
        ("--numa-binding die a", "core-complex"),
        ("--duplicate-stdout-filters x a", "--log-dir"),
        ("--rdzv-conf is_host=maybe a", "is_host=maybe"),
    ] {
        let line = line.replace("--monitor-interval -1", "--monitor-interval=-1");
        let error = parse(&line).unwrap_err().to_string();
        assert!(error.contains(part), "{line}: {error}");
    }
}
