//! Parameters that are computed from others: weight norm and spectral norm, with the keys of PyTorch's
//! parametrizations.

use crate::{Buffer, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Forward, Member, MemberMut, Module};
use crate::{Memo, Parameter, Training};
use rushlight_core::layout::wrap_dim;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use std::any::Any;

/// Computes a parameter from the tensors learned in its place.
pub trait Parametrization: Module {
    /// The parameter's value.
    fn value(&self) -> Result<Tensor>;
}

/// A module one of whose parameters is computed, by [`weight_norm`] or [`spectral_norm`].
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Linear, Module, weight_norm};
/// use rushlight::Tensor;
/// let layer = weight_norm(Linear::new(4, 3)?, "weight", 0)?;
/// let names: Vec<String> = layer.state_dict().into_keys().collect();
/// assert_eq!(names, ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]);
/// assert_eq!(layer.forward(&Tensor::ones([2, 4])?)?.shape(), [2, 3]);
/// let plain: Linear = layer.remove()?;
/// assert_eq!(plain.weight.shape(), [3, 4]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Parametrized<M, P> {
    /// The parameter in here is a placeholder without its own memory.
    module: M,
    name: String,
    /// PyTorch's name prefix of the learned tensors: `parametrizations.weight`.
    prefix: String,
    parametrization: P,
}

impl<M: Module, P: Parametrization> Parametrized<M, P> {
    fn new(mut module: M, name: &str, parametrize: impl FnOnce(&Tensor) -> Result<P>) -> Result<Self> {
        let mut weight = None;
        module.members(&mut |member, what| match what {
            Member::Parameter(p) if member == name => weight = Some(p.tensor().detach()),
            _ => {}
        });
        let weight = weight.ok_or_else(|| {
            Error::value(format!("parametrize: {} has no parameter '{name}' of its own", module.type_name()))
        })?;
        let parametrization = parametrize(&weight)?;
        let stand_in = Tensor::zeros_with([], (weight.dtype(), weight.device()))?.expand(weight.shape())?;
        replace(&mut module, name, Parameter::from_leaf(stand_in));
        Ok(Self { module, name: name.to_owned(), prefix: format!("parametrizations.{name}"), parametrization })
    }

    /// The module with the parameter's value of now, which remembers how it was computed: for modules that are called
    /// by other methods than [`Forward::forward`].
    pub fn module(&self) -> Result<M> {
        let mut module = Memo::sharing().module(&self.module)?;
        replace(&mut module, &self.name, Parameter::from_leaf(self.parametrization.value()?));
        Ok(module)
    }

    /// The module with the parameter's value of now as an ordinary parameter: PyTorch's `remove_parametrizations`.
    pub fn remove(self) -> Result<M> {
        let value = no_grad(|| self.parametrization.value())?;
        let mut module = self.module;
        replace(&mut module, &self.name, Parameter::new(&value)?);
        Ok(module)
    }
}

fn replace(module: &mut impl Module, name: &str, parameter: Parameter) {
    module.members_mut(&mut |member, what| match what {
        MemberMut::Parameter(p) if member == name => *p = parameter.tie(),
        _ => {}
    });
}

crate::module::shown_by_repr!([M: Module, P: Parametrization] Parametrized<M, P>);

impl<M: Module, P: Parametrization> Module for Parametrized<M, P> {
    fn type_name(&self) -> &'static str {
        "Parametrized"
    }

    fn extra_repr(&self) -> String {
        format!("{}, {}", self.module.type_name(), self.module.extra_repr())
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        self.module.members(&mut |name, member| {
            if name != self.name {
                visit(name, member);
            }
        });
        visit(&self.prefix, Member::Module(&self.parametrization));
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        let hidden = &self.name;
        self.module.members_mut(&mut |name, member| {
            if name != hidden {
                visit(name, member);
            }
        });
        visit(&self.prefix, MemberMut::Module(&mut self.parametrization));
    }

    fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
        Ok(Box::new(Self {
            module: memo.module(&self.module)?,
            parametrization: memo.module(&self.parametrization)?,
            name: self.name.clone(),
            prefix: self.prefix.clone(),
        }))
    }
}

impl<M: Forward, P: Parametrization> Forward for Parametrized<M, P> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.module()?.forward(input)
    }
}

/// A parameter as lengths and directions.
#[derive(Module)]
pub struct WeightNorm {
    /// The lengths.
    pub original0: Parameter,
    /// The directions, of any length.
    pub original1: Parameter,
    dim: Option<usize>,
}

/// Learns a parameter's norms along a dimension separately from its directions; with `None` as dimension it has one
/// norm.
pub fn weight_norm<M: Module>(
    module: M,
    name: &str,
    dim: impl Into<Option<isize>>,
) -> Result<Parametrized<M, WeightNorm>> {
    let dim = dim.into();
    Parametrized::new(module, name, |weight| {
        let dim = dim.map(|dim| wrap_dim(dim, weight.rank())).transpose()?;
        let lengths = no_grad(|| lengths(weight, dim))?;
        Ok(WeightNorm { original0: Parameter::new(&lengths)?, original1: Parameter::new(weight)?, dim })
    })
}

/// The lengths of a tensor's parts along a dimension, in a shape that broadcasts with it.
fn lengths(weight: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    match dim {
        None => weight.norm(2.0),
        Some(_) if weight.rank() < 2 => weight.abs(),
        Some(dim) => {
            let others: Vec<isize> = (0..weight.rank()).filter(|&d| d != dim).map(|d| d as isize).collect();
            weight.norm_dims(2.0, &others, true)
        }
    }
}

impl Parametrization for WeightNorm {
    fn value(&self) -> Result<Tensor> {
        let (g, v) = (&self.original0, &self.original1);
        v.mul(&g.div(&lengths(v, self.dim)?)?)
    }
}

/// A parameter divided by its largest singular value.
#[derive(Module)]
pub struct SpectralNorm {
    /// The parameter before the division.
    pub original: Parameter,
    #[module(rename = "0")]
    vectors: SingularVectors,
    training: Training,
    n_power_iterations: usize,
    eps: f64,
    dim: usize,
}

/// Estimates of the vectors that belong to the largest singular value.
#[derive(Module)]
struct SingularVectors {
    #[module(rename = "_u")]
    u: Buffer,
    #[module(rename = "_v")]
    v: Buffer,
}

/// The options of [`spectral_norm`].
#[derive(Clone, Debug)]
pub struct SpectralNormOptions {
    n_power_iterations: usize,
    eps: f64,
    dim: Option<isize>,
}

impl Default for SpectralNormOptions {
    fn default() -> Self {
        Self { n_power_iterations: 1, eps: 1e-12, dim: None }
    }
}

impl SpectralNormOptions {
    /// Iterations of the power method at each call while training, 1 by default.
    pub fn n_power_iterations(mut self, n_power_iterations: usize) -> Self {
        self.n_power_iterations = n_power_iterations;
        self
    }

    /// Added to lengths that are divided by, 1e-12 by default.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// The dimension of the outputs, by default the first, or for transposed convolutions the second.
    pub fn dim(mut self, dim: isize) -> Self {
        self.dim = Some(dim);
        self
    }
}

/// Divides a parameter by its largest singular value, as an estimate that gets better at each call while training.
pub fn spectral_norm<M: Module>(
    module: M,
    name: &str,
    options: SpectralNormOptions,
) -> Result<Parametrized<M, SpectralNorm>> {
    let any: &dyn Module = &module;
    let transposed = any.downcast_ref::<ConvTranspose1d>().is_some()
        || any.downcast_ref::<ConvTranspose2d>().is_some()
        || any.downcast_ref::<ConvTranspose3d>().is_some();
    Parametrized::new(module, name, |weight| {
        let SpectralNormOptions { n_power_iterations, eps, dim } = options;
        if n_power_iterations == 0 {
            return Err(Error::value("spectral_norm: expected n_power_iterations to be positive, got 0"));
        }
        if weight.rank() < 2 || weight.numel() == 0 {
            return Err(Error::shape(format!(
                "spectral_norm: '{name}' of shape {:?} is not a matrix with elements",
                weight.shape()
            )));
        }
        let dim = wrap_dim(dim.unwrap_or(isize::from(transposed)), weight.rank())?;
        let matrix = as_matrix(weight, dim)?;
        let vector = |size: isize| -> Result<Buffer> {
            let random = Tensor::randn([matrix.size(size)?])?.to_dtype(weight.dtype())?;
            Ok(Buffer::new(random.to(weight.device())?.normalize(2.0, 0, eps)?))
        };
        let vectors = SingularVectors { u: vector(0)?, v: vector(1)? };
        vectors.improve(&matrix, 15, eps)?;
        let (original, training) = (Parameter::new(weight)?, Training::default());
        Ok(SpectralNorm { original, vectors, training, n_power_iterations, eps, dim })
    })
}

/// The outputs' dimension first, the others as one.
fn as_matrix(weight: &Tensor, dim: usize) -> Result<Tensor> {
    weight.movedim([dim as isize], [0])?.flatten(1, -1)
}

impl SingularVectors {
    /// Some iterations of the power method.
    fn improve(&self, matrix: &Tensor, iterations: usize, eps: f64) -> Result<()> {
        no_grad(|| {
            for _ in 0..iterations {
                self.u.copy_(&matrix.mv(&self.v)?.normalize(2.0, 0, eps)?)?;
                self.v.copy_(&matrix.t()?.mv(&self.u)?.normalize(2.0, 0, eps)?)?;
            }
            Ok(())
        })
    }
}

impl Parametrization for SpectralNorm {
    fn value(&self) -> Result<Tensor> {
        let matrix = as_matrix(&self.original, self.dim)?;
        if self.training.get() {
            self.vectors.improve(&matrix, self.n_power_iterations, self.eps)?;
        }
        // Copies: the next call changes the vectors before backward may have seen them.
        let (u, v) = (self.vectors.u.copy()?, self.vectors.v.copy()?);
        self.original.div(&u.dot(&matrix.mv(&v)?)?)
    }
}
