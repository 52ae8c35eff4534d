//! Softmax and its logarithm.

use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Saved, record, recording};
use rushlight_core::backend::call;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Error, Result};

impl Tensor {
    /// Exponentials along `dim`, scaled to sum to one.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::zeros([1, 4])?.softmax(-1)?.to_vec::<f32>()?, [0.25; 4]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn softmax(&self, dim: isize) -> Result<Tensor> {
        self.softmax_family("softmax", dim, false)
    }

    /// [`Tensor::softmax`] computed in, and given as, another dtype.
    pub fn softmax_with(&self, dim: isize, dtype: DType) -> Result<Tensor> {
        self.to_dtype(dtype)?.softmax(dim)
    }

    /// The logarithm of [`Tensor::softmax`].
    pub fn log_softmax(&self, dim: isize) -> Result<Tensor> {
        self.softmax_family("log_softmax", dim, true)
    }

    /// [`Tensor::log_softmax`] computed in, and given as, another dtype.
    pub fn log_softmax_with(&self, dim: isize, dtype: DType) -> Result<Tensor> {
        self.to_dtype(dtype)?.log_softmax(dim)
    }

    /// [`Tensor::softmax`] of the negated elements.
    pub fn softmin(&self, dim: isize) -> Result<Tensor> {
        self.neg()?.softmax(dim)
    }

    /// [`Tensor::softmin`] computed in, and given as, another dtype.
    pub fn softmin_with(&self, dim: isize, dtype: DType) -> Result<Tensor> {
        self.to_dtype(dtype)?.softmin(dim)
    }

    fn softmax_family(&self, name: &'static str, dim: isize, log: bool) -> Result<Tensor> {
        let dim = self.wrap_dim(name, dim)?;
        announced!(format!("nn.functional.{name}"), [self, dim]; self.softmax_family(name, dim as isize, log));
        if !self.dtype().is_float() {
            // PyTorch has no kernel for integers and never calls it for an empty tensor.
            if self.numel() == 0 {
                return self.copy();
            }
            return Err(Error::dtype(format!("{name}: not implemented for {}; pass a float dtype", self.dtype())));
        }
        let x = self.contiguous()?;
        let at = |range: std::ops::Range<usize>| x.shape().get(range).map_or(1, |s| s.iter().product());
        let dims = [at(0..dim), x.shape().get(dim).copied().unwrap_or(1), at(dim + 1..x.rank())];
        let y = x.uninit_like(x.shape(), x.dtype())?;
        if y.numel() > 0 {
            y.run(call::Softmax { log, dims, x: x.engine_view(), y: y.engine_view() })?;
        }
        if recording(&[&x]) {
            let saved = Saved::output(&y, 0);
            record(name, &[&x], &y, move |ctx, dy| {
                let y = ctx.get(&saved)?;
                let dim = [dim as isize];
                let dx = match (ctx.recording(), log) {
                    (true, true) => dy.sub(&y.exp()?.mul(&dy.sum_dims(dim, true)?)?)?,
                    (true, false) => y.mul(&dy.sub(&dy.mul(&y)?.sum_dims(dim, true)?)?)?,
                    (false, _) => {
                        let dy = dy.contiguous()?;
                        let dx = y.uninit_like(y.shape(), y.dtype())?;
                        if dx.numel() > 0 {
                            dx.run(call::SoftmaxBackward {
                                log,
                                dims,
                                dy: dy.engine_view(),
                                y: y.engine_view(),
                                dx: dx.engine_view(),
                            })?;
                        }
                        dx
                    }
                };
                Ok(smallvec![Some(dx)])
            })?;
        }
        Ok(y)
    }
}
