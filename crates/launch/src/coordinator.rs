//! The coordinator: decides which nodes are in the job, when ranks start, and how to react to a failure.
//!
//! It runs with one node's agent. Agents send it events and execute its commands. [`Coordinator`] has only the rules,
//! without clock or network; [`serve`] runs them over a store.

use crate::worker::Place;
use rushlight_core::{Error, Result};
use rushlight_dist::store::Store;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The key to which agents append their events, one a line.
pub const EVENTS: &str = "events";
/// Set after an event was appended.
pub const BELL: &str = "bell";
/// How much longer than its ranks' time to stop a node may take to report that they have stopped.
const STOP_MARGIN: Duration = Duration::from_secs(60);

/// How long two launchers may claim one node rank: probes detect within 15 s that a machine is gone.
const CLAIM_TIME: Duration = Duration::from_secs(30);

/// The user's options.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Minimum and maximum nodes.
    pub nodes: (usize, usize),
    pub max_restarts: usize,
    /// Timeout for the minimum number of nodes.
    pub join_timeout: Duration,
    /// How long the start waits for more than the minimum.
    pub last_call: Duration,
    pub master_addr: Option<String>,
    pub master_port: Option<u16>,
    /// How long a node gives its ranks to stop.
    pub stop_time: Duration,
}

/// A node's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Identifies a launcher, also when it joins again.
    pub launcher: String,
    pub host: String,
    /// The address at which others reach it.
    pub address: String,
    /// A port that is free there.
    pub port: u16,
    pub local_size: usize,
    pub role: String,
    /// Its node rank, if the order is fixed.
    pub node_rank: Option<usize>,
}

/// Events of an agent. Nodes are identified by the number assigned when they joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Join {
        node: u64,
        info: NodeInfo,
    },
    /// A rank failed. `fatal` failures would happen again.
    Failed {
        node: u64,
        round: u64,
        what: String,
        code: i32,
        fatal: bool,
    },
    /// All ranks of the node succeeded: with code 0, or with the code that requests another job.
    Done {
        node: u64,
        round: u64,
        code: i32,
    },
    /// The node's ranks are stopped, as commanded.
    Stopped {
        node: u64,
        round: u64,
        port: u16,
    },
    /// A signal ended the node, and its ranks have ended. Without the node that `holds_store` no other node can
    /// continue.
    Leaving {
        node: u64,
        what: String,
        code: i32,
        holds_store: bool,
    },
    /// The node knows that the job is over.
    Left {
        node: u64,
    },
}

/// Commands to agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start ranks: the assignment of each participating node.
    Round(BTreeMap<u64, Place>),
    /// Stop the ranks of a round. With `gently` they get the time that they have before a preemption, to save their
    /// state.
    Stop { round: u64, why: String, gently: bool },
    /// The job is over.
    End { code: i32, why: String },
}

#[derive(Debug)]
enum Phase {
    /// Waiting for nodes since a time. `first` is the start of the job.
    Gathering {
        since: Duration,
        enough: Option<Duration>,
        first: bool,
    },
    /// `done` has the codes of nodes whose ranks have ended.
    Running {
        members: BTreeSet<u64>,
        done: BTreeMap<u64, i32>,
    },
    /// Waiting until the nodes' ranks have stopped, since a time.
    Stopping {
        pending: BTreeSet<u64>,
        since: Duration,
    },
    Ended,
}

/// The rules. Times are relative to the coordinator's start.
pub struct Coordinator {
    rules: Rules,
    nodes: BTreeMap<u64, NodeInfo>,
    /// Nodes by rank; later ones are appended.
    order: Vec<u64>,
    /// Nodes whose rank is taken by another node, and since when. That node may be dead without our knowing yet.
    waiting: Vec<(Duration, u64, NodeInfo)>,
    phase: Phase,
    /// The current or next round.
    round: u64,
    restarts: usize,
    commands: Vec<Command>,
    /// The time of the current call.
    now: Duration,
    /// Since when nodes wait to take part in a running job that has room for them.
    growing: Option<Duration>,
}

impl Coordinator {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            nodes: BTreeMap::new(),
            order: Vec::new(),
            waiting: Vec::new(),
            phase: Phase::Gathering { since: Duration::ZERO, enough: None, first: true },
            round: 0,
            restarts: 0,
            commands: Vec::new(),
            now: Duration::ZERO,
            growing: None,
        }
    }

    /// Commands decided since the last call.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Nodes that are present, or wait for a rank.
    pub fn nodes(&self) -> impl Iterator<Item = u64> {
        self.nodes.keys().copied().chain(self.waiting.iter().map(|(_, node, _)| *node))
    }

    /// Whether the job is over and every node knows.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended) && self.nodes.is_empty()
    }

    /// Handles an event.
    pub fn take(&mut self, event: Event, now: Duration) {
        self.now = now;
        match event {
            Event::Join { node, info } => self.join(node, info, now),
            Event::Failed { node, round, what, code, fatal } => {
                if round == self.round && self.is_member(node) {
                    self.failed(what, code, fatal);
                }
            }
            Event::Done { node, round, code } => {
                if round == self.round
                    && let Phase::Running { members, done } = &mut self.phase
                {
                    done.insert(node, code);
                    if members.iter().all(|member| done.contains_key(member)) {
                        let code = done.values().copied().max().unwrap_or(0);
                        self.end(code, "the ranks have saved their state and request another job".into());
                    }
                }
            }
            Event::Stopped { node, round, port } => {
                if let Some(info) = self.nodes.get_mut(&node) {
                    info.port = port;
                }
                if round == self.round
                    && let Phase::Stopping { pending, .. } = &mut self.phase
                {
                    pending.remove(&node);
                }
            }
            Event::Leaving { node, what, code, holds_store } => {
                let fixed = holds_store || self.rules.nodes.0 == self.rules.nodes.1;
                self.nodes.remove(&node);
                if fixed || self.nodes.is_empty() {
                    self.end(code, what);
                } else {
                    self.without(node, what);
                }
            }
            Event::Left { node } => {
                self.nodes.remove(&node);
                self.waiting.retain(|(_, other, _)| *other != node);
                self.order.retain(|&other| other != node);
            }
        }
        self.tick(now);
    }

    /// Handles a node that has disappeared.
    pub fn lost(&mut self, node: u64, now: Duration) {
        self.now = now;
        self.waiting.retain(|(_, other, _)| *other != node);
        if let Some(info) = self.nodes.remove(&node) {
            self.without(node, format!("the node {} was lost", info.host));
        }
        self.tick(now);
    }

    /// Handles timeouts.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        self.admit(now);
        self.give_up_on_silent(now);
        self.grow(now);
        let (least, most) = self.rules.nodes;
        let count = self.nodes.len();
        match &mut self.phase {
            Phase::Stopping { pending, .. } if pending.is_empty() => {
                self.round += 1;
                self.phase = Phase::Gathering { since: now, enough: None, first: false };
                self.tick(now);
            }
            Phase::Gathering { since, enough, first } => {
                if count < least {
                    *enough = None;
                    if now >= *since + self.rules.join_timeout {
                        let seconds = self.rules.join_timeout.as_secs_f32();
                        self.end(
                            1,
                            format!("{count} of {least} nodes came within {seconds} s (--rdzv-conf join_timeout)"),
                        );
                    }
                    return;
                }
                let enough = *enough.get_or_insert(now);
                if count >= most || !*first || now >= enough + self.rules.last_call {
                    self.form();
                }
            }
            _ => {}
        }
    }

    /// Lets nodes that joined a running job take part: its ranks save their state and start again with them. Waits for
    /// others to join too, unless the job is then complete.
    fn grow(&mut self, now: Duration) {
        let Phase::Running { members, done } = &self.phase else {
            self.growing = None;
            return;
        };
        let new: Vec<&str> =
            self.nodes.iter().filter(|(node, _)| !members.contains(node)).map(|(_, info)| info.host.as_str()).collect();
        let room = self.rules.nodes.1.saturating_sub(members.len());
        // A job whose first ranks are done is about to end.
        if new.is_empty() || room == 0 || !done.is_empty() {
            self.growing = None;
            return;
        }
        let since = *self.growing.get_or_insert(now);
        if new.len() < room && now < since + self.rules.last_call {
            return;
        }
        let count = members.len() + new.len().min(room);
        let why = format!("{} joined; the ranks save their state and go on with {count} nodes", new.join(", "));
        self.growing = None;
        self.stop_with(why, true);
    }

    /// Goes on without the nodes that do not report that their ranks have stopped.
    fn give_up_on_silent(&mut self, now: Duration) {
        let Phase::Stopping { pending, since } = &mut self.phase else { return };
        if now < *since + self.rules.stop_time + STOP_MARGIN {
            return;
        }
        for node in std::mem::take(pending) {
            self.nodes.remove(&node);
            self.order.retain(|&other| other != node);
        }
    }

    fn is_member(&self, node: u64) -> bool {
        matches!(&self.phase, Phase::Running { members, .. } if members.contains(&node))
    }

    fn join(&mut self, node: u64, info: NodeInfo, now: Duration) {
        if matches!(self.phase, Phase::Ended) {
            self.commands.push(Command::End { code: 1, why: "the job was over when this node came".into() });
        }
        // A launcher that lost its connection has joined again before the end of the old connection was detected.
        self.waiting.retain(|(_, _, other)| other.launcher != info.launcher);
        if let Some((&old, _)) = self.nodes.iter().find(|(_, other)| other.launcher == info.launcher) {
            self.lost(old, now);
        }
        if self.holder_of(info.node_rank).is_some() {
            return self.waiting.push((now, node, info));
        }
        self.nodes.insert(node, info);
        self.order.push(node);
    }

    /// The node with a rank of a fixed order.
    fn holder_of(&self, node_rank: Option<usize>) -> Option<&NodeInfo> {
        self.nodes.values().find(|other| node_rank.is_some() && other.node_rank == node_rank)
    }

    /// Admits nodes whose rank has become free; ends the job if two keep claiming one.
    fn admit(&mut self, now: Duration) {
        for (since, node, info) in std::mem::take(&mut self.waiting) {
            match self.holder_of(info.node_rank) {
                None => {
                    self.nodes.insert(node, info);
                    self.order.push(node);
                }
                Some(other) if now >= since + CLAIM_TIME => {
                    let rank = info.node_rank.unwrap_or(0);
                    let why =
                        format!("two launchers say that they are node {rank}: on {} and on {}", other.host, info.host);
                    self.nodes.insert(node, info);
                    self.end(1, why);
                }
                Some(_) => self.waiting.push((since, node, info)),
            }
        }
    }

    fn failed(&mut self, what: String, code: i32, fatal: bool) {
        let left = self.rules.max_restarts - self.restarts;
        if fatal || left == 0 {
            let restarted =
                if self.restarts > 0 { format!(", after {} restarts", self.restarts) } else { String::new() };
            return self.end(code, format!("{what}{restarted}"));
        }
        self.restarts += 1;
        self.stop(format!("{what}; restart {} of {}", self.restarts, self.rules.max_restarts));
    }

    /// Removes a node, without counting a failure.
    fn without(&mut self, node: u64, why: String) {
        self.order.retain(|&other| other != node);
        match &mut self.phase {
            Phase::Running { members, done } if members.contains(&node) && !done.contains_key(&node) => {
                members.remove(&node);
                self.stop(format!("{why}; going on with the nodes there are"));
            }
            Phase::Stopping { pending, .. } => {
                pending.remove(&node);
            }
            _ => {}
        }
    }

    fn stop(&mut self, why: String) {
        self.stop_with(why, false);
    }

    fn stop_with(&mut self, why: String, gently: bool) {
        if let Phase::Running { members, .. } = &self.phase {
            self.phase = Phase::Stopping { pending: members.clone(), since: self.now };
            self.commands.push(Command::Stop { round: self.round, why, gently });
        }
    }

    fn end(&mut self, code: i32, why: String) {
        if !matches!(self.phase, Phase::Ended) {
            self.phase = Phase::Ended;
            self.commands.push(Command::End { code, why });
        }
    }

    /// Starts a round with the present nodes.
    fn form(&mut self) {
        self.order.sort_by_key(|node| self.nodes[node].node_rank);
        let members: Vec<(u64, NodeInfo)> =
            self.order.iter().take(self.rules.nodes.1).map(|&node| (node, self.nodes[&node].clone())).collect();
        let world_size = members.iter().map(|(_, info)| info.local_size).sum();
        let first = &members[0].1;
        let alone = members.len() == 1;
        let address = if alone { "127.0.0.1".to_owned() } else { first.address.clone() };
        let address = self.rules.master_addr.clone().unwrap_or(address);
        let port = self.rules.master_port.unwrap_or(first.port);
        let mut places = BTreeMap::new();
        let (mut first_rank, mut in_role) = (0, BTreeMap::<&str, usize>::new());
        for (node_rank, (node, info)) in members.iter().enumerate() {
            let before = in_role.entry(&info.role).or_default();
            let place = Place {
                round: self.round,
                restarts: self.restarts,
                node_rank,
                nodes: members.len(),
                first_rank,
                world_size,
                first_role_rank: *before,
                role_size: members.iter().filter(|(_, c)| c.role == info.role).map(|(_, c)| c.local_size).sum(),
                master_addr: address.clone(),
                master_port: port,
            };
            *before += info.local_size;
            first_rank += info.local_size;
            places.insert(*node, place);
        }
        self.phase = Phase::Running { members: places.keys().copied().collect(), done: BTreeMap::new() };
        self.commands.push(Command::Round(places));
    }
}

/// Maximum commands kept in the store: a job may restart for months, so its memory must not grow.
const KEPT_COMMANDS: u64 = 64;

/// Runs the rules over a store until the job is over.
pub fn serve(store: &dyn Store, rules: Rules) -> Result<()> {
    let started = Instant::now();
    let mut coordinator = Coordinator::new(rules);
    let mut commands = 0u64;
    let mut over_since = None;
    store.append(EVENTS, b"")?;
    loop {
        if store.wait_for(&[BELL], Duration::from_millis(100)).is_ok() {
            store.delete_key(BELL)?;
        }
        // Read even if the bell did not ring: an agent may have died before it rang.
        let events = take_events(store)?;
        let quiet = events.is_empty();
        for event in events {
            match event {
                Ok(event) => coordinator.take(event, started.elapsed()),
                // The job cannot go on without an event, and every node shall know why.
                Err(e) => coordinator.end(1, e.to_string().replace("rushlight run: ", "")),
            }
        }
        if quiet {
            // Nothing arrived: check which nodes are alive.
            for node in coordinator.nodes().collect::<Vec<_>>() {
                if store.check(&[&format!("gone/{node}")])? {
                    coordinator.lost(node, started.elapsed());
                }
            }
            coordinator.tick(started.elapsed());
        }
        for command in coordinator.take_commands() {
            if matches!(command, Command::End { .. }) {
                over_since = Some(Instant::now());
            }
            commands += 1;
            store.set(&format!("command/{commands}"), command.encode().as_bytes())?;
            store.add("commands", 1)?;
            // Every agent reads commands as they come: none is that far behind.
            if commands > KEPT_COMMANDS {
                store.delete_key(&format!("command/{}", commands - KEPT_COMMANDS))?;
            }
        }
        // A node that does not answer delays the end only briefly: its ranks get time to end.
        if coordinator.is_over() || over_since.is_some_and(|since| since.elapsed() > Duration::from_secs(60)) {
            return Ok(());
        }
    }
}

/// The events since the last call, in order. An event that is not understood is an error in its place.
fn take_events(store: &dyn Store) -> Result<Vec<Result<Event>>> {
    let mut log = store.get(EVENTS)?;
    // Emptied only if nothing was appended meanwhile; otherwise read again.
    while !log.is_empty() {
        let now = store.compare_set(EVENTS, &log, b"")?;
        if now.is_empty() {
            break;
        }
        log = now;
    }
    Ok(log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(Event::decode).collect())
}

fn malformed(what: &str) -> Error {
    Error::io(format!(
        "rushlight run: another launcher sent a message that is not understood ({what}); are all of one version?"
    ))
}

fn parse(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|e| malformed(&e.to_string()))
}

fn number(value: &Value, name: &str) -> Result<u64> {
    value[name].as_u64().ok_or_else(|| malformed(name))
}

fn text(value: &Value, name: &str) -> Result<String> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| malformed(name))
}

fn port(value: &Value, name: &str) -> Result<u16> {
    u16::try_from(number(value, name)?).map_err(|_| malformed(name))
}

fn code(value: &Value) -> Result<i32> {
    value["code"].as_i64().and_then(|code| i32::try_from(code).ok()).ok_or_else(|| malformed("code"))
}

impl Event {
    pub fn encode(&self) -> String {
        match self {
            Event::Join { node, info } => json!({
                "event": "join", "node": node, "launcher": info.launcher, "host": info.host, "address": info.address, "port": info.port,
                "local_size": info.local_size, "role": info.role, "node_rank": info.node_rank,
            }),
            Event::Failed { node, round, what, code, fatal } => {
                json!({"event": "failed", "node": node, "round": round, "what": what, "code": code, "fatal": fatal})
            }
            Event::Done { node, round, code } => json!({"event": "done", "node": node, "round": round, "code": code}),
            Event::Stopped { node, round, port } => {
                json!({"event": "stopped", "node": node, "round": round, "port": port})
            }
            Event::Leaving { node, what, code, holds_store } => {
                json!({"event": "leaving", "node": node, "what": what, "code": code, "holds_store": holds_store})
            }
            Event::Left { node } => json!({"event": "left", "node": node}),
        }
        .to_string()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let v = parse(bytes)?;
        let node = number(&v, "node")?;
        Ok(match v["event"].as_str().unwrap_or_default() {
            "join" => Event::Join {
                node,
                info: NodeInfo {
                    launcher: text(&v, "launcher")?,
                    host: text(&v, "host")?,
                    address: text(&v, "address")?,
                    port: port(&v, "port")?,
                    local_size: number(&v, "local_size")? as usize,
                    role: text(&v, "role")?,
                    node_rank: v["node_rank"].as_u64().map(|rank| rank as usize),
                },
            },
            "failed" => Event::Failed {
                node,
                round: number(&v, "round")?,
                what: text(&v, "what")?,
                code: code(&v)?,
                fatal: v["fatal"].as_bool().unwrap_or(false),
            },
            "done" => Event::Done { node, round: number(&v, "round")?, code: code(&v)? },
            "stopped" => Event::Stopped { node, round: number(&v, "round")?, port: port(&v, "port")? },
            "leaving" => Event::Leaving {
                node,
                what: text(&v, "what")?,
                code: code(&v)?,
                holds_store: v["holds_store"].as_bool().unwrap_or(false),
            },
            "left" => Event::Left { node },
            other => return Err(malformed(other)),
        })
    }
}

impl Command {
    pub fn encode(&self) -> String {
        match self {
            Command::Round(places) => {
                let places: Vec<Value> = places
                    .iter()
                    .map(|(node, p)| {
                        json!({
                            "node": node, "round": p.round, "restarts": p.restarts, "node_rank": p.node_rank,
                            "nodes": p.nodes, "first_rank": p.first_rank, "world_size": p.world_size,
                            "first_role_rank": p.first_role_rank, "role_size": p.role_size,
                            "master_addr": p.master_addr, "master_port": p.master_port,
                        })
                    })
                    .collect();
                json!({"command": "round", "places": places})
            }
            Command::Stop { round, why, gently } => {
                json!({"command": "stop", "round": round, "why": why, "gently": gently})
            }
            Command::End { code, why } => json!({"command": "end", "code": code, "why": why}),
        }
        .to_string()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let v = parse(bytes)?;
        Ok(match v["command"].as_str().unwrap_or_default() {
            "round" => {
                let mut places = BTreeMap::new();
                for p in v["places"].as_array().ok_or_else(|| malformed("places"))? {
                    let count = |name: &str| number(p, name).map(|n| n as usize);
                    let place = Place {
                        round: number(p, "round")?,
                        restarts: count("restarts")?,
                        node_rank: count("node_rank")?,
                        nodes: count("nodes")?,
                        first_rank: count("first_rank")?,
                        world_size: count("world_size")?,
                        first_role_rank: count("first_role_rank")?,
                        role_size: count("role_size")?,
                        master_addr: text(p, "master_addr")?,
                        master_port: port(p, "master_port")?,
                    };
                    places.insert(number(p, "node")?, place);
                }
                Command::Round(places)
            }
            "stop" => Command::Stop {
                round: number(&v, "round")?,
                why: text(&v, "why")?,
                gently: v["gently"].as_bool().unwrap_or(false),
            },
            "end" => Command::End { code: code(&v)?, why: text(&v, "why")? },
            other => return Err(malformed(other)),
        })
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
pub(crate) mod tests;
