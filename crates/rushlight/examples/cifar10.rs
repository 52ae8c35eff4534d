//! Image classification: the tutorial's small network or a ResNet-18 on CIFAR-10.

mod machine;

use clap::{ArgMatches, arg};
use machine::{count, get, number, option};
use rushlight::data::transform::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor};
use rushlight::data::vision::{Cifar10, LabeledImages};
use rushlight::nn::models::resnet18_cifar;
use rushlight::optim::lr_scheduler::{CosineAnnealingLR, LrScheduler};
use rushlight::prelude::*;
use std::time::Instant;

const ABOUT: &str = "Trains a convolutional network on CIFAR-10 and reports its accuracy after every epoch. Without the official files \
                     it trains on images made up for the purpose.";

fn arguments() -> ArgMatches {
    machine::command("cifar10", ABOUT, "cifar10 --model resnet18 --batch-size 128 --workers 2 --precision bf16")
        .arg(option("model", "cnn", "The tutorial's small network, or a ResNet-18").value_parser(["cnn", "resnet18"]))
        .arg(option("data", "data", "Directory of the data set"))
        .arg(arg!(--download "Fetch the data set if it is not there"))
        .arg(count("synthetic", "4096", "Images of the made-up data set"))
        .arg(count("epochs", "5", "Passes over the data"))
        .arg(count("batch-size", "128", "Images of a batch"))
        .arg(count("workers", "1", "Threads that prepare batches ahead"))
        .arg(number("lr", "0.02", "Learning rate at the beginning"))
        .arg(machine::precision())
        .arg(machine::no_capture())
        .get_matches()
}

#[derive(Module)]
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Net {
    fn new() -> Result<Self> {
        Ok(Self {
            conv1: Conv2d::new(3, 6, 5).build()?,
            conv2: Conv2d::new(6, 16, 5).build()?,
            fc1: Linear::new(16 * 5 * 5, 120).build()?,
            fc2: Linear::new(120, 84).build()?,
            fc3: Linear::new(84, 10).build()?,
        })
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.relu()?.max_pool2d(2)?;
        let x = self.conv2.forward(&x)?.relu()?.max_pool2d(2)?.flatten(1, -1)?;
        self.fc3.forward(&self.fc2.forward(&self.fc1.forward(&x)?.relu()?)?.relu()?)
    }
}

/// The share of images whose class the model names.
fn accuracy(model: &dyn Forward, loader: &DataLoader<(Tensor, Tensor)>, device: Device) -> Result<f64> {
    model.eval();
    let (mut right, mut all) = (0.0, 0usize);
    for batch in loader.epoch(0) {
        let (images, labels) = batch?;
        let guess = no_grad(|| model.forward(&images.to(&device)?)?.argmax_dim(1, false))?;
        right += guess.eq(&labels.to(&device)?)?.sum()?.item::<f64>()?;
        all += labels.numel();
    }
    model.train();
    Ok(right / all.max(1) as f64)
}

/// The official images, or made-up ones.
fn images(arguments: &ArgMatches) -> Result<(LabeledImages, LabeledImages)> {
    let root: String = get(arguments, "data");
    if arguments.get_flag("download") {
        Cifar10::download(&root)?;
    }
    match (Cifar10::train(&root), Cifar10::test(&root)) {
        (Ok(train), Ok(test)) => Ok((train, test)),
        (Err(reason), _) | (_, Err(reason)) => {
            println!("{reason}\ntraining on made-up images instead");
            let count: usize = get(arguments, "synthetic");
            Ok((Cifar10::synthetic(count, 1)?, Cifar10::synthetic(count / 4, 2)?))
        }
    }
}

fn main() -> Result<()> {
    let arguments = arguments();
    let device = machine::prepare(&arguments)?;
    let (lower, name) = (machine::lower(&arguments), get::<String>(&arguments, "model"));
    let (epochs, workers) = (get::<usize>(&arguments, "epochs"), get(&arguments, "workers"));

    let (train, test) = images(&arguments)?;
    let normalize = || Normalize::new([0.491, 0.482, 0.447], [0.247, 0.243, 0.262]);
    let augment = Compose::new()
        .then(RandomCrop::new(32).padding(4))
        .then(RandomHorizontalFlip::default())
        .then(ToTensor::default())
        .then(normalize()?);
    let plain = Compose::new().then(ToTensor::default()).then(normalize()?);
    let size = get(&arguments, "batch-size");
    let loader = DataLoader::new(train.transform(augment)).batch_size(size).shuffle(true).workers(workers).build()?;
    let held_out = DataLoader::new(test.transform(plain)).batch_size(size).workers(workers).build()?;

    let model: Box<dyn Forward> = if name == "cnn" { Box::new(Net::new()?) } else { Box::new(resnet18_cifar(10)?) };
    let model = model.to(device)?;
    println!("{name}: {} parameters on {device}", model.num_parameters());
    let mut optimizer =
        Sgd::new(model.parameters()).lr(get(&arguments, "lr")).momentum(0.9).weight_decay(5e-4).build()?;
    let mut schedule = CosineAnnealingLR::new(epochs.max(1)).build(&mut optimizer)?;

    let mut capture = machine::capture(&arguments, device);
    for epoch in 0..epochs {
        let (start, mut seen, mut total) = (Instant::now(), 0, 0.0);
        let batches = loader.epoch(epoch as u64).progress().title(format!("epoch {epoch}"));
        let display = batches.handle();
        for batch in batches {
            let (images, labels) = batch?;
            let count = labels.numel();
            let loss = capture.run(&[images, labels], |[images, labels]| {
                let loss = {
                    let _precision = set_autocast(lower)?;
                    model.forward(images)?.cross_entropy(labels)?
                };
                optimizer.zero_grad();
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            })?;
            let loss = loss.item::<f64>()?;
            display.message(format!("loss {loss:.3}"));
            seen += count;
            total += loss * count as f64;
        }
        schedule.step(&mut optimizer)?;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "epoch {epoch}: loss {:.4}, accuracy {:.1} %, {seconds:.1} s, {:.0} images/s",
            total / seen.max(1) as f64,
            100.0 * accuracy(&*model, &held_out, device)?,
            seen as f64 / seconds
        );
    }
    Ok(())
}
