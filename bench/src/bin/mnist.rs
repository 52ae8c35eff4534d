//! Training steps of MNIST's small networks from Rust, for `bench/cpp`: the same steps as `bench/mnist.cpp`.
//!
//! Protocol, line by line on standard input: `CASE STEPS` answers the seconds of one step.

use rushlight::prelude::*;
use std::io::{BufRead, Write};
use std::time::Instant;

/// The network of PyTorch's C++ example.
#[derive(Module)]
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    dropout: Dropout2d,
    fc1: Linear,
    fc2: Linear,
}

impl Net {
    fn new() -> Result<Self> {
        Ok(Self {
            conv1: Conv2d::new(1, 10, 5)?,
            conv2: Conv2d::new(10, 20, 5)?,
            dropout: Dropout2d::new(0.5)?,
            fc1: Linear::new(320, 50)?,
            fc2: Linear::new(50, 10)?,
        })
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.max_pool2d(2)?.relu()?;
        let x = self.dropout.forward(&self.conv2.forward(&x)?)?.max_pool2d(2)?.relu()?.view([-1, 320])?;
        self.fc2.forward(&self.fc1.forward(&x)?.relu()?.dropout(0.5, true)?)?.log_softmax(1)
    }
}

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.fc1.forward(&x.flatten(1, -1)?)?.relu()?)?.log_softmax(1)
    }
}

type Step = Box<dyn FnMut() -> Result<()>>;

fn training(model: impl Forward + 'static, batch: usize) -> Result<Step> {
    let (x, y) = (Tensor::rand([batch, 1, 28, 28])?, Tensor::randint(0, 10, [batch])?);
    let mut optimizer = Sgd::builder(model.parameters()).lr(0.01).momentum(0.5).build()?;
    Ok(Box::new(move || {
        optimizer.zero_grad();
        let loss = model.forward(&x)?.nll_loss(&y, &CrossEntropyOptions::default())?;
        loss.backward()?;
        optimizer.step()?;
        loss.item::<f32>().map(|_| ())
    }))
}

fn prepare(case: &str) -> Result<Step> {
    Ok(match case {
        "mlp_8" => training(Mlp { fc1: Linear::new(784, 32)?, fc2: Linear::new(32, 10)? }, 8)?,
        "mlp_64" => training(Mlp { fc1: Linear::new(784, 64)?, fc2: Linear::new(64, 10)? }, 64)?,
        "conv_64" => training(Net::new()?, 64)?,
        _ => return Err(Error::value(format!("unknown case '{case}': expected mlp_8, mlp_64 or conv_64"))),
    })
}

fn main() -> Result<()> {
    let mut prepared: Option<(String, Step)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some((name, Ok(steps))) = line.split_once(' ').map(|(name, steps)| (name, steps.parse::<u32>())) else {
            return Err(Error::value(format!(
                "unknown request '{line}': expected CASE STEPS, for example mlp_64 1000"
            )));
        };
        if prepared.as_ref().is_none_or(|(known, _)| known != name) {
            prepared = Some((name.to_string(), prepare(name)?));
        }
        let Some((_, step)) = &mut prepared else { continue };
        let start = Instant::now();
        for _ in 0..steps {
            step()?;
        }
        println!("{:e}", start.elapsed().as_secs_f64() / f64::from(steps));
        std::io::stdout().flush()?;
    }
    Ok(())
}
