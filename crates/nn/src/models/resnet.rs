//! ResNets, with torchvision's parameter names.

use crate::init::{self, FanMode, Nonlinearity};
use crate::{BatchNorm2d, Conv2d, Forward, Linear, Module, Sequential, locate};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::{MaxPool, Tensor};

/// Two 3×3 convolutions around a shortcut.
#[derive(Module)]
pub struct BasicBlock {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<Sequential>,
}

impl BasicBlock {
    fn new(inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        let conv = |inputs, stride| Conv2d::builder(inputs, outputs, 3).stride(stride).padding(1).bias(false).build();
        let downsample = if stride == 1 && inputs == outputs {
            None
        } else {
            let shortcut = Conv2d::builder(inputs, outputs, 1).stride(stride).bias(false).build()?;
            Some(Sequential::new().append(shortcut).append(BatchNorm2d::new(outputs)?))
        };
        Ok(Self {
            conv1: conv(inputs, stride)?,
            bn1: BatchNorm2d::new(outputs)?,
            conv2: conv(outputs, 1)?,
            bn2: BatchNorm2d::new(outputs)?,
            downsample,
        })
    }
}

impl Forward for BasicBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
            let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
            match &self.downsample {
                Some(shortcut) => y.add(&shortcut.forward(x)?)?.relu(),
                None => y.add(x)?.relu(),
            }
        })
    }
}

/// A residual network of [`BasicBlock`]s.
#[derive(Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    layer1: Sequential,
    layer2: Sequential,
    layer3: Sequential,
    layer4: Sequential,
    fc: Linear,
    large_images: bool,
}

/// The options of a [`ResNet`]; the defaults are torchvision's.
#[derive(Clone, Debug)]
pub struct ResNetBuilder {
    layers: [usize; 4],
    num_classes: usize,
    width: usize,
    large_images: bool,
}

impl ResNet {
    /// A network whose four stages have `layers` blocks.
    pub fn new(layers: [usize; 4]) -> Result<Self> {
        Self::builder(layers).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](ResNetBuilder::build).
    pub fn builder(layers: [usize; 4]) -> ResNetBuilder {
        ResNetBuilder { layers, num_classes: 1000, width: 64, large_images: true }
    }
}

impl ResNetBuilder {
    setters! {
        /// How many classes there are, 1000 by default.
        num_classes: usize;
        /// Channels of the first stage, 64 by default; each stage doubles them.
        width: usize;
        /// Whether images are some 224×224 (the default), so that a first convolution of 7×7 and a pooling make them a
        /// quarter as large, or 32×32: a first convolution of 3×3 keeps their size.
        large_images: bool;
    }

    /// Makes the network, with torchvision's initial values.
    pub fn build(self) -> Result<ResNet> {
        let ResNetBuilder { layers, num_classes, width, large_images } = self;
        let widest = width.checked_mul(8).filter(|&w| w > 0);
        let Some(widest) = widest.filter(|_| layers.iter().all(|&blocks| blocks > 0)) else {
            return Err(Error::value(format!(
                "ResNet: every stage needs a block and channels, got layers {layers:?}, width {width}"
            )));
        };
        let conv1 = if large_images {
            Conv2d::builder(3, width, 7).stride(2).padding(3).bias(false).build()?
        } else {
            Conv2d::builder(3, width, 3).padding(1).bias(false).build()?
        };
        let stage = |inputs: usize, outputs: usize, blocks: usize, stride: usize| -> Result<Sequential> {
            let mut stage = Sequential::new().append(BasicBlock::new(inputs, outputs, stride)?);
            for _ in 1..blocks {
                stage = stage.append(BasicBlock::new(outputs, outputs, 1)?);
            }
            Ok(stage)
        };
        let net = ResNet {
            conv1,
            bn1: BatchNorm2d::new(width)?,
            layer1: stage(width, width, layers[0], 1)?,
            layer2: stage(width, 2 * width, layers[1], 2)?,
            layer3: stage(2 * width, 4 * width, layers[2], 2)?,
            layer4: stage(4 * width, widest, layers[3], 2)?,
            fc: Linear::new(widest, num_classes)?,
            large_images,
        };
        (&net as &dyn Module).apply(&mut |m| match m.downcast_ref::<Conv2d>() {
            Some(conv) => init::kaiming_normal_(&conv.weight, FanMode::FanOut, Nonlinearity::Relu),
            None => Ok(()),
        })?;
        Ok(net)
    }
}

impl Forward for ResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let mut x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
            if self.large_images {
                x = x.max_pool2d(MaxPool::new(3).stride(2).padding(1))?;
            }
            for layer in [&self.layer1, &self.layer2, &self.layer3, &self.layer4] {
                x = layer.forward(&x)?;
            }
            self.fc.forward(&x.adaptive_avg_pool2d(1)?.flatten(1, -1)?)
        })
    }
}

/// torchvision's ResNet-18, for images of about 224×224.
pub fn resnet18(num_classes: usize) -> Result<ResNet> {
    ResNet::builder([2, 2, 2, 2]).num_classes(num_classes).build()
}

/// torchvision's ResNet-34.
pub fn resnet34(num_classes: usize) -> Result<ResNet> {
    ResNet::builder([3, 4, 6, 3]).num_classes(num_classes).build()
}

/// ResNet-18 for 32×32 images: a 3×3 first convolution and no pooling after it.
pub fn resnet18_cifar(num_classes: usize) -> Result<ResNet> {
    ResNet::builder([2, 2, 2, 2]).num_classes(num_classes).large_images(false).build()
}
