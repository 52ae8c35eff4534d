//! Image classification: the tutorial's small network or a ResNet-18 on CIFAR-10.

#[macro_use]
mod machine;

use clap::{ArgMatches, arg};
use machine::{count, get, number, option};
use rushlight::data::transform::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor};
use rushlight::data::vision::{Cifar10, LabeledImages};
use rushlight::nn::models::resnet18_cifar;
use rushlight::optim::lr_scheduler::CosineAnnealingLR;
use rushlight::prelude::*;
use rushlight::train::metrics::Accuracy;
use rushlight::train::{Mode, ModelCheckpoint};

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
        .args(machine::runs())
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
            conv1: Conv2d::new(3, 6, 5)?,
            conv2: Conv2d::new(6, 16, 5)?,
            fc1: Linear::new(16 * 5 * 5, 120)?,
            fc2: Linear::new(120, 84)?,
            fc3: Linear::new(84, 10)?,
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

#[derive(Module)]
struct Classifier {
    net: Box<dyn Forward>,
    lr: f64,
    #[module(skip)]
    accuracy: Accuracy,
}

impl TrainModule for Classifier {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (images, labels): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
        self.net.forward(images)?.cross_entropy(labels)
    }

    fn validation_step(&self, (images, labels): &Self::Batch, step: &mut StepContext) -> Result<()> {
        let scores = self.net.forward(images)?;
        self.accuracy.update(&scores, labels)?;
        step.log("val_accuracy", &self.accuracy)?;
        step.log("val_loss", scores.cross_entropy(labels)?)
    }

    fn configure_optimizers(&self, run: &Run) -> Result<Optimizers> {
        let mut optimizer = Sgd::builder(self.parameters()).lr(self.lr).momentum(0.9).weight_decay(5e-4).build()?;
        let epochs = run.max_epochs().unwrap_or(1).max(1) as usize;
        let schedule = CosineAnnealingLR::new(&mut optimizer, epochs)?;
        Ok(Optimizers::new(optimizer).schedule(schedule, Interval::Epoch))
    }
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
            say!("{reason}\ntraining on made-up images instead");
            let count: usize = get(arguments, "synthetic");
            Ok((Cifar10::synthetic(count, 1)?, Cifar10::synthetic(count / 4, 2)?))
        }
    }
}

fn main() -> Result<()> {
    let arguments = arguments();
    let device = machine::prepare(&arguments)?;
    let (name, workers) = (get::<String>(&arguments, "model"), get(&arguments, "workers"));

    let (train, test) = images(&arguments)?;
    let normalize = || Normalize::new([0.491, 0.482, 0.447], [0.247, 0.243, 0.262]);
    let augment = Compose::new()
        .then(RandomCrop::new(32).padding(4))
        .then(RandomHorizontalFlip::default())
        .then(ToTensor::default())
        .then(normalize()?);
    let plain = Compose::new().then(ToTensor::default()).then(normalize()?);
    let size = get(&arguments, "batch-size");
    let mut loader =
        DataLoader::builder(train.transform(augment)).batch_size(size).shuffle(true).workers(workers).build()?;
    let mut held_out = DataLoader::builder(test.transform(plain)).batch_size(size).workers(workers).build()?;

    let net: Box<dyn Forward> = if name == "cnn" { Box::new(Net::new()?) } else { Box::new(resnet18_cifar(10)?) };
    let mut model = Classifier { net, lr: get(&arguments, "lr"), accuracy: Accuracy::new() };
    say!("{name}: {} parameters on {device}", model.num_parameters());
    let saves = ModelCheckpoint::new().monitor("val_accuracy", Mode::Max).keep_last(1);
    let mut trainer = machine::trainer(&arguments, "cifar10", device)?
        .max_epochs(get::<usize>(&arguments, "epochs") as u64)
        .checkpoint(saves)
        .build()?;
    trainer.fit(&mut model, &mut loader, Some(&mut held_out))?;
    machine::exit_if_preempted(trainer);
    Ok(())
}
