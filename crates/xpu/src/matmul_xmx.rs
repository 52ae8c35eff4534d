//! Products of half-precision matrices on the matrix units (XMX) of Intel GPUs (`kernels/matmul_xmx.cl`), if the device
//! has `cl_intel_subgroup_matrix_multiply_accumulate` for sub-groups of 16, as Data Center GPUs Max do.
//!
//! No such device has run them yet. Intel's offline compiler generates the matrix instructions from them
//! (`scripts/test_xpu pvc`), and devices with sub-groups run them with the instruction emulated.

use crate::device::{Scratch, Xpu};
use crate::matmul::{Matrix, Product};
use crate::program::{At, Defines, Family, Key, Kind, run};
use rushlight_core::{DType, Result};

/// How matrix instructions are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixUnits {
    /// Not at all.
    #[default]
    Absent,
    /// By the device.
    Present,
    /// By shuffles within a sub-group, for tests.
    Emulated,
}

impl MatrixUnits {
    /// The variable that overrides the device's choice: `0` for none, `emulate`.
    pub const VARIABLE: &str = "RUSHLIGHT_XPU_XMX";

    /// The support of a device with these extensions and sub-group sizes.
    pub fn of(has: impl Fn(&str) -> bool, sub_groups: &[usize]) -> Self {
        let sized = has("cl_intel_required_subgroup_size") && sub_groups.contains(&16);
        let sub_groups_work = sized && has("cl_intel_subgroups") && has("cl_intel_subgroups_short");
        match std::env::var(Self::VARIABLE).as_deref() {
            Ok("0") => MatrixUnits::Absent,
            Ok("emulate") if sub_groups_work => MatrixUnits::Emulated,
            // GPUs with sub-groups of 8 need the instructions in another form.
            _ if sub_groups_work && !sub_groups.contains(&8) && has("cl_intel_subgroup_matrix_multiply_accumulate") => {
                MatrixUnits::Present
            }
            _ => MatrixUnits::Absent,
        }
    }
}

/// Rows of a panel of the left operand, columns of one of the right operand, and elements along the depth of a step:
/// 512 elements together.
const PANEL: usize = 32;
const STEP: usize = 16;

impl Xpu {
    /// Whether matrix units support the product.
    pub fn takes_matrix_units(&self, p: &Product) -> bool {
        self.driver.abilities().matrix_units != MatrixUnits::Absent
            && p.a.dtype == p.b.dtype
            && matches!(p.a.dtype, DType::BF16 | DType::F16)
            && p.packed.is_none()
    }

    /// A product on matrix units, or with their instruction emulated.
    pub fn product_xmx(&self, p: &Product, flags: u32, emulated: bool) -> Result<()> {
        let (left, a_batch) = self.xmx_panels(p.a, [p.images, p.heads, p.m, p.k], false, emulated)?;
        let (right, b_batch) = self.xmx_panels(p.b.transposed(), [p.images, p.heads, p.n, p.k], true, emulated)?;
        let bias = p.bias.unwrap_or((p.row_factors.unwrap_or(p.out.address), p.out.dtype, 0));
        let tags = [p.a.dtype as u16, p.out.dtype as u16, bias.1 as u16, emulated as u16];
        let key = Key::new(Family::MatMulXmx, "matmul_xmx", tags);
        let kernel = self.kernel(key, || product_defines(p.a.dtype, p.out.dtype, bias.1, emulated))?;
        // A group has four panels of rows and two of columns.
        let groups = [p.m.div_ceil(4 * PANEL), p.n.div_ceil(2 * PANEL), p.images * p.heads];
        // The right operand is read in pairs.
        run!(self, kernel, groups, [128, 1, 1];
            p.problem(), At(left.address), At(right.address), a_batch, b_batch / 2, At(bias.0), At(p.out.address),
            Kind::F32.number(p.alpha), Kind::F32.number(p.beta), flags)
    }

    /// An operand in panels of rows, and the batch stride in elements. `sizes` are images, heads, rows and depth. A
    /// matrix shared by all batches is packed once.
    fn xmx_panels(&self, x: Matrix, sizes: [usize; 4], right: bool, emulated: bool) -> Result<(Scratch<'_>, u64)> {
        let [images, heads, count, depth] = sizes;
        let [image_stride, head_stride, stride, depth_stride] = x.strides;
        let shared = (image_stride == 0 || images == 1) && (head_stride == 0 || heads == 1);
        let (batch, number, steps) =
            (if shared { 1 } else { images * heads }, count.div_ceil(PANEL), depth.div_ceil(STEP));
        let key = Key::new(Family::MatMulXmx, "pack_xmx", [right as u16, emulated as u16]);
        let kernel = self.kernel(key, || pack_defines(right, emulated))?;
        let elements = number * steps * PANEL * STEP;
        let scratch = self.scratch(batch * elements * size_of::<u16>())?;
        let (from, to) = (At(x.address), At(scratch.address));
        run!(self, kernel, [steps, number, batch], [64, 1, 1];
            from, to, count, depth, stride, depth_stride, heads, image_stride, head_stride)?;
        Ok((scratch, if shared { 0 } else { elements as u64 }))
    }
}

fn xmx_defines(dtype: DType, emulated: bool) -> Defines {
    let half = (dtype == DType::F16) as u8;
    Defines::default().kind(Kind::F32).define("HALF", half).define("EMULATED", emulated as u8)
}

fn product_defines(dtype: DType, out: DType, bias: DType, emulated: bool) -> Defines {
    xmx_defines(dtype, emulated).define("MATMUL_XMX", 1).dtype("OUT", out).dtype("C", bias)
}

fn pack_defines(right: bool, emulated: bool) -> Defines {
    xmx_defines(DType::BF16, emulated).define("PACK_XMX", 1).define("RIGHT", right as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::write_gpu_source;
    use rushlight_core::{Backend, Layout, View};

    /// Bits of small integers, which both dtypes represent exactly, so that sums do not depend on their order.
    fn integers(count: usize, dtype: DType) -> Vec<u8> {
        let bits: [u16; 5] = match dtype {
            DType::F16 => [0xc000, 0xbc00, 0, 0x3c00, 0x4000],
            _ => [0xc000, 0xbf80, 0, 0x3f80, 0x4000],
        };
        (0..count).flat_map(|i| bits[((i * 2654435761) >> 7) % 5].to_le_bytes()).collect()
    }

    /// The forms for the matrix units themselves, which `scripts/test_xpu pvc` compiles.
    #[test]
    fn texts_for_an_offline_compiler() {
        for dtype in [DType::BF16, DType::F16] {
            for out in [dtype, DType::F32] {
                let key = Key::new(Family::MatMulXmx, "matmul_xmx", [dtype as u16, out as u16]);
                write_gpu_source(key, product_defines(dtype, out, dtype, false)).unwrap();
            }
        }
        for right in [false, true] {
            write_gpu_source(Key::new(Family::MatMulXmx, "pack_xmx", []), pack_defines(right, false)).unwrap();
        }
    }

    #[test]
    fn emulated_matrix_units_multiply_as_plain_kernels_do() {
        if std::env::var(MatrixUnits::VARIABLE).as_deref() != Ok("emulate") {
            return println!(
                "skipped: scripts/test_xpu sets {}=emulate for a device with sub-groups",
                MatrixUnits::VARIABLE
            );
        }
        let engine = crate::started(0).unwrap();
        let xpu = &engine.0;
        let abilities = xpu.driver.abilities();
        assert_eq!(abilities.matrix_units, MatrixUnits::Emulated, "{} has no sub-groups of 16", abilities.name);
        for dtype in [DType::BF16, DType::F16] {
            for (m, n, k) in [(32, 32, 16), (150, 70, 100), (33, 129, 17), (1, 40, 64)] {
                for turned in [false, true] {
                    let upload = |rows: usize, columns: usize| {
                        let storage = engine.alloc(3 * rows * columns * 2).unwrap();
                        engine.upload(&integers(3 * rows * columns, dtype), &storage, 0).unwrap();
                        storage
                    };
                    let (a, b) = (upload(m, k), upload(k, n));
                    let layout = Layout::contiguous(&[3, m, k]).unwrap();
                    let a = Matrix::of(View::new(&a, &layout, dtype).unwrap());
                    let layout = Layout::contiguous(&if turned { [3, n, k] } else { [3, k, n] }).unwrap();
                    let b = Matrix::of(View::new(&b, &layout, dtype).unwrap());
                    let b = if turned { b.transposed() } else { b };
                    let results = [false, true].map(|xmx| {
                        let out = engine.alloc(3 * m * n * 4).unwrap();
                        let layout = Layout::contiguous(&[3, m, n]).unwrap();
                        let to = Matrix::of(View::new(&out, &layout, DType::F32).unwrap());
                        let p = Product { alpha: 0.5, ..Product::new([3, 1], [m, n, k], a, b, to) };
                        if xmx { xpu.product_xmx(&p, 0, true) } else { xpu.tiles(&p, Kind::F32, 0) }.unwrap();
                        let mut bytes = vec![0u8; 3 * m * n * 4];
                        engine.download(&out, 0, &mut bytes).unwrap();
                        bytes
                    });
                    assert!(results[0] == results[1], "{dtype} {m} x {n} x {k}, turned: {turned}");
                }
            }
        }
    }
}
