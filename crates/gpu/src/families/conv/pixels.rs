//! Convolutions by kernels of one pixel with the channels innermost: products of the weight with the pixels that the
//! steps meet.

use crate::device::Gpu;
use crate::families::conv::{Pass, product};
use crate::families::matmul::Gemm;
use rushlight_core::backend::Conv;
use rushlight_core::{Layout, Result, Scalar, View};

/// The pixels that a strided convolution reads, `[batch, height, width, channels]`, of channels-last images.
fn met(s: &Conv, images: View) -> Result<Layout> {
    let &[image, _, row, pixel] = images.strides() else {
        return Layout::contiguous(&[0]);
    };
    let shape = [s.batch, s.output[1], s.output[2], s.in_channels];
    Layout::strided(&shape, &[image, row * s.stride[1], pixel * s.stride[2], 1], images.layout().offset())
}

impl Gpu {
    /// One of the three computations over dense channels-last images, given input, weight and output (or their
    /// gradients). Returns whether the kernel is one pixel. With `add`, which requires a stride of one, the result is
    /// added to the output.
    pub fn conv_pixels(&self, pass: Pass, s: &Conv, x: View, w: View, y: View, add: bool) -> Result<bool> {
        let pixels = s.kernel == [1; 3] && s.padding == [0; 3] && s.groups == 1 && s.input[0] == 1;
        if !pixels || x.shape().len() != 4 || x.numel() == 0 || y.numel() == 0 {
            return Ok(false);
        }
        let (rows, from, to) = (s.batch * s.output[1] * s.output[2], s.in_channels, s.out_channels);
        let all = s.stride == [1; 3];
        let layout = met(s, x)?;
        let some = x.with_layout(&layout)?;
        let packed = match pass {
            _ if all => None,
            Pass::Input => Some(self.temporary(some.shape(), x.dtype())?),
            _ => Some(self.packed(some)?),
        };
        let dense = packed.as_ref().map_or(x.ptr(), |t| t.view().ptr()) as u64;
        let (weight, out) = (w.ptr() as u64, y.ptr() as u64);
        let (of_input, of_output) = ([0, from, 1], [0, to, 1]);
        let product = |m, n, k| Gemm { beta: if add { 1.0 } else { 0.0 }, ..product(x.dtype(), 1, m, n, k) };
        self.gemm(match pass {
            Pass::Forward => Gemm {
                a: dense,
                a_strides: of_input,
                b: weight,
                b_strides: [0, 1, from],
                out,
                out_strides: of_output,
                ..product(rows, to, from)
            },
            Pass::Input => Gemm {
                a: out,
                a_strides: of_output,
                b: weight,
                b_strides: of_input,
                out: dense,
                out_strides: of_input,
                ..product(rows, from, to)
            },
            Pass::Weight => Gemm {
                a: out,
                a_strides: [0, 1, to],
                b: dense,
                b_strides: of_input,
                out: weight,
                out_strides: of_input,
                ..product(to, from, rows)
            },
        })?;
        if let (Pass::Input, Some(packed)) = (pass, &packed) {
            self.fill(Scalar::Int(0), x)?;
            self.copy(packed.view(), some)?;
        }
        Ok(true)
    }
}
