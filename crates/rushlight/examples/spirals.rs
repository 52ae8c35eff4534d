//! Trains a small network to tell three intertwined spirals apart and draws what it has learned.
//!
//!     cargo run --release --example spirals -- --epochs 400

use rushlight::prelude::*;
use std::io::{IsTerminal, Write};
use std::time::Instant;

const HELP: &str = "\
Trains a small network on three intertwined spirals and draws its decision boundary in the terminal.

usage: spirals [--epochs N] [--hidden N] [--lr RATE] [--seed N]

  --epochs N   training steps over the whole set (default 400)
  --hidden N   width of the two hidden layers (default 64)
  --lr RATE    learning rate of Adam (default 0.01)
  --seed N     seed of data and weights (default 0)

example: spirals --epochs 200 --hidden 32";

const ARMS: usize = 3;
const POINTS: usize = 400;

struct Options {
    epochs: usize,
    hidden: usize,
    lr: f64,
    seed: u64,
}

impl Options {
    fn parse() -> Result<Self> {
        let mut options = Options { epochs: 400, hidden: 64, lr: 0.01, seed: 0 };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            if name == "--help" || name == "-h" {
                println!("{HELP}");
                std::process::exit(0);
            }
            let value = args.next().ok_or_else(|| Error::value(format!("{name} needs a value; see --help")))?;
            let bad = || Error::value(format!("{name} {value}: not a number it can take; see --help"));
            match name.as_str() {
                "--epochs" => options.epochs = value.parse().map_err(|_| bad())?,
                "--hidden" => options.hidden = value.parse().ok().filter(|&h| h > 0).ok_or_else(bad)?,
                "--lr" => options.lr = value.parse().map_err(|_| bad())?,
                "--seed" => options.seed = value.parse().map_err(|_| bad())?,
                _ => return Err(Error::value(format!("unknown option {name}; see --help"))),
            }
        }
        Ok(options)
    }
}

/// Points on three noisy spiral arms, and which arm each lies on.
fn spirals() -> Result<(Tensor, Tensor)> {
    let (mut points, mut arms) = (Vec::new(), Vec::new());
    for arm in 0..ARMS {
        let radius = Tensor::linspace(0.05, 1.0, POINTS)?;
        let noise = Tensor::randn([POINTS])? * 0.12;
        let angle = (&radius * 5.0 + (arm as f64) * std::f64::consts::TAU / ARMS as f64 + noise).eval()?;
        points.push(stack(&[&(&radius * angle.cos()).eval()?, &(&radius * angle.sin()).eval()?], 1)?);
        arms.push(Tensor::full([POINTS], arm)?);
    }
    Ok((cat(&points.iter().collect::<Vec<_>>(), 0)?, cat(&arms.iter().collect::<Vec<_>>(), 0)?))
}

/// Two hidden layers with ReLU between.
struct Net(Vec<(Tensor, Tensor)>);

impl Net {
    fn new(hidden: usize) -> Result<Self> {
        let sizes = [2, hidden, hidden, ARMS];
        let layer = |pair: &[usize]| -> Result<(Tensor, Tensor)> {
            let weight = (Tensor::randn([pair[1], pair[0]])? * (2.0 / pair[0] as f64).sqrt()).eval()?;
            Ok((weight.requires_grad_(true)?, Tensor::zeros([pair[1]])?.requires_grad_(true)?))
        };
        Ok(Net(sizes.windows(2).map(layer).collect::<Result<_>>()?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (i, (weight, bias)) in self.0.iter().enumerate() {
            x = x.linear(weight, Some(bias))?;
            if i + 1 < self.0.len() {
                x = x.relu()?;
            }
        }
        Ok(x)
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.0.iter().flat_map(|(w, b)| [w.clone(), b.clone()]).collect()
    }
}

/// Adam, as it is written in the paper.
struct Adam {
    parameters: Vec<(Tensor, Tensor, Tensor)>,
    lr: f64,
    step: i32,
}

impl Adam {
    fn new(parameters: Vec<Tensor>, lr: f64) -> Result<Self> {
        let with_moments = |p: Tensor| Ok((p.clone(), p.zeros_like()?, p.zeros_like()?));
        Ok(Self { parameters: parameters.into_iter().map(with_moments).collect::<Result<_>>()?, lr, step: 0 })
    }

    fn step(&mut self) -> Result<()> {
        self.step += 1;
        let (b1, b2) = (0.9, 0.999);
        let lr = self.lr * (1.0 - f64::powi(b2, self.step)).sqrt() / (1.0 - f64::powi(b1, self.step));
        no_grad(|| {
            for (p, m, v) in &self.parameters {
                let Some(g) = p.grad() else { continue };
                m.lerp_(&g, 1.0 - b1)?;
                v.mul_(b2)?.addcmul_(&g, &g, 1.0 - b2)?;
                p.addcdiv_(m, &(v.sqrt()? + 1e-8).eval()?, -lr)?;
                p.zero_grad();
            }
            Ok(())
        })
    }
}

/// The plane from -1.2 to 1.2, each character coloured by the arm the network sees there; data points are dots.
fn draw(net: &Net, x: &Tensor, y: &Tensor) -> Result<()> {
    let (rows, cols) = (30usize, 72usize);
    let at = |i: usize, n: usize| (i as f32 + 0.5) / n as f32 * 2.4 - 1.2;
    let grid: Vec<f32> = (0..rows * cols).flat_map(|i| [at(i % cols, cols), -at(i / cols, rows)]).collect();
    let seen = no_grad(|| net.forward(&Tensor::from_slice(&grid, [rows * cols, 2])?)?.argmax(-1))?.to_vec::<i64>()?;
    let mut cells = vec![None; rows * cols];
    for (p, arm) in x.to_vec::<f32>()?.chunks_exact(2).zip(y.to_vec::<i64>()?) {
        let cell = |v: f32, n: usize| ((v + 1.2) / 2.4 * n as f32) as usize;
        if let Some(c) = cells.get_mut(cell(-p[1], rows) * cols + cell(p[0], cols)) {
            *c = Some(arm);
        }
    }
    let colour = std::io::stdout().is_terminal();
    // Dark backgrounds for what the network sees, bright dots for the data; letters and digits where there is no
    // colour.
    let (dark, bright) = ([52, 22, 18], [203, 119, 75]);
    for row in 0..rows {
        let mut line = String::new();
        for i in row * cols..(row + 1) * cols {
            let arm = seen[i] as usize;
            match (cells[i], colour) {
                (Some(p), true) => line += &format!("\x1b[48;5;{}m\x1b[38;5;{}m●", dark[arm], bright[p as usize]),
                (None, true) => line += &format!("\x1b[48;5;{}m ", dark[arm]),
                (Some(p), false) => line.push(['A', 'B', 'C'][p as usize]),
                (None, false) => line.push(['.', ':', ' '][arm]),
            }
        }
        writeln!(std::io::stdout(), "{line}{}", if colour { "\x1b[0m" } else { "" })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    match train() {
        // Nobody reads the output any more, as in `spirals | head`.
        Err(e) if e.to_string().contains("Broken pipe") => Ok(()),
        done => done,
    }
}

fn train() -> Result<()> {
    let options = Options::parse()?;
    manual_seed(options.seed);
    let (x, y) = spirals()?;
    let net = Net::new(options.hidden)?;
    let mut optimizer = Adam::new(net.parameters(), options.lr)?;
    let live = std::io::stdout().is_terminal();
    let start = Instant::now();
    for epoch in 1..=options.epochs {
        let logits = net.forward(&x)?;
        let loss = logits.cross_entropy(&y)?;
        loss.backward()?;
        optimizer.step()?;
        if epoch % 20 == 0 || epoch == options.epochs {
            let hits = no_grad(|| logits.argmax(-1)?.eq(&y)?.sum(..)?.item::<i64>())?;
            let mut out = std::io::stdout();
            write!(
                out,
                "{}epoch {epoch:4}/{}  loss {:.4}  accuracy {:5.1}%  {:.0} steps/s{}",
                if live { "\r" } else { "" },
                options.epochs,
                loss.item::<f64>()?,
                100.0 * hits as f64 / y.numel() as f64,
                epoch as f64 / start.elapsed().as_secs_f64(),
                if live { "" } else { "\n" },
            )?;
            out.flush()?;
        }
    }
    writeln!(std::io::stdout())?;
    draw(&net, &x, &y)
}
