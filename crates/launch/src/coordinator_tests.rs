use super::*;

pub(crate) fn rules(nodes: (usize, usize), max_restarts: usize) -> Rules {
    Rules {
        nodes,
        max_restarts,
        join_timeout: Duration::from_secs(600),
        last_call: Duration::from_secs(30),
        master_addr: None,
        master_port: None,
        stop_time: Duration::from_secs(5),
    }
}

pub(crate) fn info(name: &str) -> NodeInfo {
    NodeInfo {
        launcher: name.into(),
        host: name.into(),
        address: format!("10.0.0.{name}"),
        port: 20000,
        local_size: 2,
        role: "default".into(),
        node_rank: None,
    }
}

const AT: fn(u64) -> Duration = Duration::from_secs;

fn join(c: &mut Coordinator, node: u64, now: u64) {
    c.take(Event::Join { node, info: info(&node.to_string()) }, AT(now));
}

/// The nodes of the one round that was commanded, by rank.
fn round(c: &mut Coordinator) -> Vec<u64> {
    match &c.take_commands()[..] {
        [Command::Round(places)] => {
            let mut nodes: Vec<u64> = places.keys().copied().collect();
            nodes.sort_by_key(|node| places[node].node_rank);
            nodes
        }
        other => panic!("{other:?}"),
    }
}

fn stopped(c: &mut Coordinator) -> u64 {
    match &c.take_commands()[..] {
        [Command::Stop { round, .. }] => *round,
        other => panic!("{other:?}"),
    }
}

fn ended(c: &mut Coordinator) -> (i32, String) {
    match &c.take_commands()[..] {
        [Command::End { code, why }] => (*code, why.clone()),
        other => panic!("{other:?}"),
    }
}

fn fail(node: u64, round: u64) -> Event {
    Event::Failed { node, round, what: "rank 0 failed".into(), code: 7, fatal: false }
}

#[test]
fn a_fixed_job_starts_when_all_are_there_and_ends_when_all_are_done() {
    let mut c = Coordinator::new(rules((2, 2), 0));
    join(&mut c, 1, 0);
    assert_eq!(c.take_commands(), []);
    join(&mut c, 2, 5);
    let [Command::Round(places)] = &c.take_commands()[..] else { panic!("no round") };
    assert_eq!((places[&2].first_rank, places[&2].world_size, places[&2].node_rank), (2, 4, 1));
    assert_eq!((places[&1].master_addr.as_str(), places[&1].master_port), ("10.0.0.1", 20000));
    c.take(Event::Done { node: 1, round: 0, code: 75 }, AT(6));
    assert_eq!(c.take_commands(), []);
    c.take(Event::Done { node: 2, round: 0, code: 0 }, AT(7));
    assert_eq!(ended(&mut c).0, 75);
    c.take(Event::Left { node: 1 }, AT(7));
    assert!(!c.is_over());
    c.lost(2, AT(8));
    assert!(c.is_over());
}

#[test]
fn an_elastic_job_waits_for_the_last_call() {
    let mut c = Coordinator::new(rules((1, 3), 0));
    join(&mut c, 1, 0);
    join(&mut c, 2, 10);
    assert_eq!(c.take_commands(), []);
    c.tick(AT(31));
    assert_eq!(round(&mut c), [1, 2]);
    // A third joins while they run, and the job is complete: it takes part when the ranks have saved their state.
    join(&mut c, 3, 40);
    assert!(matches!(&c.take_commands()[..], [Command::Stop { round: 0, gently: true, .. }]));
    c.take(Event::Stopped { node: 1, round: 0, port: 1 }, AT(42));
    c.take(Event::Stopped { node: 2, round: 0, port: 1 }, AT(42));
    assert_eq!(round(&mut c), [1, 2, 3]);
    c.lost(1, AT(50));
    assert_eq!(stopped(&mut c), 1);
    c.take(Event::Stopped { node: 2, round: 1, port: 1 }, AT(51));
    c.take(Event::Stopped { node: 3, round: 1, port: 1 }, AT(51));
    assert_eq!(round(&mut c), [2, 3]);
}

#[test]
fn a_running_job_grows_after_the_last_call() {
    let mut c = Coordinator::new(rules((1, 4), 0));
    join(&mut c, 1, 0);
    c.tick(AT(30));
    assert_eq!(round(&mut c), [1]);
    // There is room for three: others may join within the last call.
    join(&mut c, 2, 100);
    join(&mut c, 3, 110);
    c.tick(AT(129));
    assert_eq!(c.take_commands(), []);
    c.tick(AT(130));
    assert_eq!(stopped(&mut c), 0);
    c.take(Event::Stopped { node: 1, round: 0, port: 1 }, AT(131));
    assert_eq!(round(&mut c), [1, 2, 3]);
    // Not a failure: none is allowed here. A job whose first ranks are done does not grow any more.
    c.take(Event::Done { node: 2, round: 1, code: 0 }, AT(200));
    join(&mut c, 4, 201);
    c.tick(AT(300));
    assert_eq!(c.take_commands(), []);
}

#[test]
fn failures_count_and_changes_of_membership_do_not() {
    let mut c = Coordinator::new(rules((1, 4), 1));
    (1..=4).for_each(|node| join(&mut c, node, 0));
    assert_eq!(round(&mut c), [1, 2, 3, 4]);
    for (round_number, lost) in [(0, 4), (1, 3)] {
        c.lost(lost, AT(1));
        assert_eq!(stopped(&mut c), round_number);
        for node in 1..lost {
            assert_eq!(c.take_commands(), []);
            c.take(Event::Stopped { node, round: round_number, port: 1 }, AT(1));
        }
        assert_eq!(round(&mut c).len() as u64, lost - 1);
    }
    c.take(fail(1, 2), AT(2));
    // Reports of the same failure by others do not count again.
    c.take(fail(2, 2), AT(2));
    assert_eq!(stopped(&mut c), 2);
    c.take(Event::Stopped { node: 1, round: 2, port: 1 }, AT(2));
    c.take(Event::Stopped { node: 2, round: 2, port: 1 }, AT(2));
    assert_eq!(round(&mut c), [1, 2]);
    c.take(fail(1, 2), AT(2));
    assert_eq!(c.take_commands(), [], "a failure of an earlier round");
    c.take(fail(2, 3), AT(3));
    let (code, why) = ended(&mut c);
    assert_eq!(code, 7);
    assert!(why.contains("after 1 restarts"), "{why}");
}

#[test]
fn too_few_nodes_end_the_job_in_time() {
    let mut c = Coordinator::new(rules((2, 2), 3));
    join(&mut c, 1, 0);
    c.tick(AT(599));
    assert_eq!(c.take_commands(), []);
    c.tick(AT(600));
    let (code, why) = ended(&mut c);
    assert_eq!(code, 1);
    assert!(why.contains("1 of 2 nodes"), "{why}");
    // A lost node may be replaced within the same time.
    let mut c = Coordinator::new(rules((2, 2), 0));
    join(&mut c, 1, 0);
    join(&mut c, 2, 0);
    round(&mut c);
    c.lost(2, AT(1000));
    stopped(&mut c);
    c.take(Event::Stopped { node: 1, round: 0, port: 1 }, AT(1001));
    assert_eq!(c.take_commands(), []);
    join(&mut c, 3, 1500);
    assert_eq!(round(&mut c), [1, 3]);
}

#[test]
fn fatal_failures_and_signals_end_a_fixed_job() {
    let mut c = Coordinator::new(rules((1, 1), 5));
    join(&mut c, 1, 0);
    round(&mut c);
    c.take(Event::Failed { node: 1, round: 0, what: "no such program".into(), code: 127, fatal: true }, AT(0));
    assert_eq!(ended(&mut c).0, 127);
    let mut c = Coordinator::new(rules((2, 2), 5));
    join(&mut c, 1, 0);
    join(&mut c, 2, 0);
    round(&mut c);
    c.take(Event::Leaving { node: 2, what: "SIGTERM".into(), code: 143, holds_store: false }, AT(0));
    assert_eq!(ended(&mut c).0, 143);
}

#[test]
fn node_ranks_give_the_order_and_must_differ() {
    let mut c = Coordinator::new(rules((2, 2), 0));
    let at = |rank, name: &str| NodeInfo { node_rank: Some(rank), ..info(name) };
    c.take(Event::Join { node: 1, info: at(1, "a") }, AT(0));
    c.take(Event::Join { node: 2, info: at(0, "b") }, AT(0));
    assert_eq!(round(&mut c), [2, 1]);
    let mut c = Coordinator::new(rules((2, 2), 0));
    c.take(Event::Join { node: 1, info: at(1, "a") }, AT(0));
    c.take(Event::Join { node: 2, info: at(1, "b") }, AT(0));
    assert_eq!(c.take_commands(), [], "the first may be dead without our knowing yet");
    c.tick(AT(30));
    assert!(ended(&mut c).1.contains("node 1"));
}

#[test]
fn a_node_takes_the_place_of_a_lost_one() {
    let mut c = Coordinator::new(rules((2, 2), 0));
    let at = |rank, name: &str| NodeInfo { node_rank: Some(rank), ..info(name) };
    c.take(Event::Join { node: 1, info: at(0, "a") }, AT(0));
    c.take(Event::Join { node: 2, info: at(1, "b") }, AT(0));
    assert_eq!(round(&mut c), [1, 2]);
    // Another machine claims the second rank, whose death is detected later.
    c.take(Event::Join { node: 3, info: at(1, "c") }, AT(10));
    assert_eq!(c.take_commands(), []);
    c.lost(2, AT(15));
    assert_eq!(stopped(&mut c), 0);
    c.take(Event::Stopped { node: 1, round: 0, port: 1 }, AT(15));
    assert_eq!(round(&mut c), [1, 3]);
    // A launcher that lost its connection joins again: the old one is known to be gone.
    c.take(Event::Join { node: 4, info: at(1, "c") }, AT(20));
    assert_eq!(stopped(&mut c), 1);
    c.take(Event::Stopped { node: 1, round: 1, port: 1 }, AT(21));
    assert_eq!(round(&mut c), [1, 4]);
}

#[test]
fn messages_survive_the_wire() {
    let events = [
        Event::Join { node: 3, info: NodeInfo { node_rank: Some(1), ..info("1") } },
        fail(1, 2),
        Event::Done { node: 1, round: 9, code: 75 },
        Event::Stopped { node: 1, round: 2, port: 3 },
        Event::Leaving { node: 1, what: "x".into(), code: 143, holds_store: false },
        Event::Left { node: 8 },
    ];
    for event in events {
        assert_eq!(Event::decode(event.encode().as_bytes()).unwrap(), event);
    }
    let place = Place { round: 4, world_size: 8, master_addr: "h".into(), master_port: 5, ..Place::default() };
    let commands = [
        Command::Round([(7, place)].into()),
        Command::Stop { round: 1, why: "w".into(), gently: true },
        Command::End { code: -1, why: String::new() },
    ];
    for command in commands {
        assert_eq!(Command::decode(command.encode().as_bytes()).unwrap(), command);
    }
    for bad in ["", "{}", "[]", "{\"event\":\"join\",\"node\":1}", "{\"command\":\"stop\"}", "\u{1}"] {
        assert!(Event::decode(bad.as_bytes()).is_err() && Command::decode(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_node_that_does_not_report_its_stop_is_given_up() {
    let mut c = Coordinator::new(rules((1, 3), 1));
    (1..=3).for_each(|node| join(&mut c, node, 0));
    assert_eq!(round(&mut c), [1, 2, 3]);
    c.take(fail(1, 0), AT(10));
    assert_eq!(stopped(&mut c), 0);
    c.take(Event::Stopped { node: 1, round: 0, port: 1 }, AT(11));
    c.take(Event::Stopped { node: 2, round: 0, port: 1 }, AT(11));
    c.tick(AT(74));
    assert_eq!(c.take_commands(), []);
    c.tick(AT(75));
    assert_eq!(round(&mut c), [1, 2]);
}

/// An agent that dies between the two parts of a message loses only the bell.
#[test]
fn an_event_without_its_bell_is_read() {
    let store = std::sync::Arc::new(rushlight_dist::store::HashStore::new());
    let theirs = store.clone();
    let serving = std::thread::spawn(move || serve(&*theirs, rules((1, 1), 0)));
    let tell = |event: Event| store.append(EVENTS, format!("{}\n", event.encode()).as_bytes()).unwrap();
    tell(Event::Join { node: 1, info: info("1") });
    store.wait_for(&["command/1"], Duration::from_secs(20)).unwrap();
    tell(Event::Done { node: 1, round: 0, code: 0 });
    tell(Event::Left { node: 1 });
    assert!(serving.join().unwrap().is_ok());
}

/// Every node hears of an event that is not understood, and those around it are not lost.
#[test]
fn a_malformed_event_ends_the_job_with_its_reason() {
    let store = rushlight_dist::store::HashStore::new();
    let line = |event: Event| format!("{}\n", event.encode());
    let log = [line(Event::Join { node: 1, info: info("1") }), "nonsense\n".into(), line(Event::Left { node: 1 })];
    store.append(EVENTS, log.concat().as_bytes()).unwrap();
    serve(&store, rules((1, 2), 0)).unwrap();
    match Command::decode(&store.get("command/1").unwrap()).unwrap() {
        Command::End { code: 1, why } => assert!(why.contains("not understood"), "{why}"),
        other => panic!("{other:?}"),
    }
}
