//! Simulates the cost of a job of many ranks: rendezvous, and the all-reduce of one 25 MiB bucket by each algorithm.
//!
//! Constants are measured here first (a connection's handshake, a request of the store, latency and bandwidth of TCP on
//! the loopback, the speed of a sum), or given as `latency_us=` and `gb_per_s=` for another network. Then every rank's
//! clock is simulated step by step: a step starts when the slower of two partners reaches it and takes the latency with
//! a random delay, plus the time of its bytes and of its sum. `docs/distributed.md` shows a run.
//!
//!     cargo run --release -p rushlight-dist --example simulate latency_us=20 gb_per_s=20

use rushlight_core::{Error, Result};
use rushlight_dist::launch::Secret;
use rushlight_dist::store::{Store, TcpStore};
use rushlight_tensor::Tensor;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

const BUCKET: f64 = (25 << 20) as f64;
const RANKS_PER_NODE: usize = 8;
/// Connections of a rank to the store, and its requests, until its first collective.
const CONNECTIONS: f64 = 3.0;
const REQUESTS: f64 = 10.0;
/// Bytes of a rank's entry in the list of ranks: node, port, addresses.
const CARD: f64 = 90.0;

/// Seconds.
#[derive(Debug)]
struct Constants {
    handshake: f64,
    request: f64,
    latency: f64,
    byte: f64,
    summed_byte: f64,
    copied_byte: f64,
}

fn seconds(n: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..n).for_each(|_| run());
    start.elapsed().as_secs_f64() / n as f64
}

fn measure() -> Result<Constants> {
    let secret = Secret::random()?;
    let store = TcpStore::host(&[0], true, secret.clone())?;
    let port = store.port();
    let mut clients = Vec::new();
    let start = Instant::now();
    for _ in 0..200 {
        clients.push(TcpStore::connect("127.0.0.1", &[port], secret.clone())?);
    }
    let handshake = start.elapsed().as_secs_f64() / 200.0;
    let client = &clients[0];
    let request = seconds(2000, || drop(client.add("n", 1)));

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    const BULK: usize = 64 << 20;
    let echo = std::thread::spawn(move || {
        let mut message = [0; 144];
        for _ in 0..2000 {
            if far.read_exact(&mut message).and_then(|()| far.write_all(&message)).is_err() {
                return;
            }
        }
        let mut bulk = vec![0; BULK];
        let _ = far.read_exact(&mut bulk).and_then(|()| far.write_all(&[1]));
    });
    let mut message = [0; 144];
    let round_trip = seconds(2000, || drop(near.write_all(&message).and_then(|()| near.read_exact(&mut message))));
    let bulk = vec![0; BULK];
    let sent = seconds(1, || drop(near.write_all(&bulk).and_then(|()| near.read_exact(&mut [0]))));
    let _ = echo.join();

    let (a, b) = (Tensor::ones([BULK / 4])?, Tensor::ones([BULK / 4])?);
    a.add_(&b)?;
    let summed = seconds(5, || drop(a.add_(&b)));
    let copied = seconds(5, || drop(a.copy_(&b)));
    Ok(Constants {
        handshake,
        request,
        latency: round_trip / 2.0,
        byte: sent / BULK as f64,
        summed_byte: summed / BULK as f64,
        copied_byte: copied / BULK as f64,
    })
}

/// Delays of messages: the latency, and now and then much more. Exponential, half of the latency in the mean.
struct Delays(u64);

impl Delays {
    fn next(&mut self, latency: f64) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let uniform = ((self.0 >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        latency * (1.0 - 0.5 * uniform.ln())
    }
}

/// Ring: reduce-scatter and all-gather of `bytes` among `n`.
fn ring(n: usize, bytes: f64, c: &Constants, delays: &mut Delays) -> f64 {
    let piece = bytes / n as f64;
    let mut clocks = vec![0.0f64; n];
    let mut next = clocks.clone();
    for step in 0..2 * (n - 1) {
        let sum = if step < n - 1 { piece * c.summed_byte } else { 0.0 };
        for i in 0..n {
            let before = if i == 0 { n - 1 } else { i - 1 };
            next[i] = clocks[i].max(clocks[before]) + delays.next(c.latency) + piece * c.byte + sum;
        }
        std::mem::swap(&mut clocks, &mut next);
    }
    clocks.into_iter().fold(0.0, f64::max)
}

/// Recursive doubling: everything, with partners at doubling distance.
fn doubling(n: usize, bytes: f64, c: &Constants, delays: &mut Delays) -> f64 {
    let mut clocks = vec![0.0f64; n];
    let mut distance = 1;
    while distance < n {
        let before = clocks.clone();
        for (i, clock) in clocks.iter_mut().enumerate() {
            let partner = before[(i ^ distance).min(n - 1)];
            *clock = clock.max(partner) + delays.next(c.latency) + bytes * (c.byte + c.summed_byte);
        }
        distance *= 2;
    }
    clocks.into_iter().fold(0.0, f64::max)
}

/// A binomial tree to the root and back: twice the depth.
fn tree(n: usize, bytes: f64, c: &Constants, delays: &mut Delays) -> f64 {
    let depth = n.next_power_of_two().ilog2();
    let down: f64 = (0..depth).map(|_| delays.next(c.latency) + bytes * c.byte).sum();
    let up: f64 = (0..depth).map(|_| delays.next(c.latency) + bytes * (c.byte + c.summed_byte)).sum();
    down + up
}

/// `println!` that ends the program if the pipe is closed.
macro_rules! print_line {
    ($($text:tt)*) => {
        if writeln!(std::io::stdout(), $($text)*).is_err() {
            return Ok(());
        }
    };
}

fn main() -> Result<()> {
    let mut c = measure()?;
    print_line!(
        "measured: handshake {:.0} µs, request {:.0} µs, latency {:.1} µs, {:.2} GB/s by TCP, {:.1} GB/s summed",
        c.handshake * 1e6,
        c.request * 1e6,
        c.latency * 1e6,
        1e-9 / c.byte,
        1e-9 / c.summed_byte
    );
    for argument in std::env::args().skip(1) {
        match argument.split_once('=').map(|(name, value)| (name, value.parse::<f64>())) {
            Some(("latency_us", Ok(value))) => c.latency = value * 1e-6,
            Some(("gb_per_s", Ok(value))) => c.byte = 1e-9 / value,
            _ => return Err(Error::value(format!("'{argument}': expected latency_us=NUMBER or gb_per_s=NUMBER"))),
        }
    }
    print_line!("network: latency {:.1} µs, {:.2} GB/s", c.latency * 1e6, 1e-9 / c.byte);
    print_line!(
        "| ranks | rendezvous | of that the list of ranks | ring of all | nodes, then rings | doubling | tree |"
    );
    print_line!("|---|---|---|---|---|---|---|");
    for ranks in [16, 128, 1024, 16_384] {
        let n = ranks as f64;
        let list = n * n * CARD * c.byte;
        let meeting = n * (CONNECTIONS * c.handshake + REQUESTS * c.request) + list;
        let mut delays = Delays(7);
        let nodes = ranks / RANKS_PER_NODE;
        // Within a node: reduce-scatter and all-gather through shared memory, each byte read and written once.
        let shared = BUCKET * (c.summed_byte + c.copied_byte);
        // The rings of a node share its network.
        let crowded = Constants { byte: c.byte * RANKS_PER_NODE as f64, ..c };
        let inner = ring(nodes, BUCKET / RANKS_PER_NODE as f64, &crowded, &mut delays) + shared;
        let times = [
            ring(ranks, BUCKET, &c, &mut delays),
            inner,
            doubling(ranks, BUCKET, &c, &mut delays),
            tree(ranks, BUCKET, &c, &mut delays),
        ];
        let ms: Vec<String> = times.iter().map(|t| format!("{:.1} ms", t * 1e3)).collect();
        print_line!("| {ranks} | {:.2} s | {list:.2} s | {} |", meeting, ms.join(" | "));
    }
    Ok(())
}
