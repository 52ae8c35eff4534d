//! Kernels with several strategies by size, on problems for each strategy, against plain loops.

use rushlight_core::{DType, Result, rng};
use rushlight_tensor::{InterpolateMode, InterpolateOptions, Tensor};

#[test]
fn the_element_of_a_rank() -> Result<()> {
    let _turn = crate::turn();
    rng::manual_seed(3);
    for n in [7usize, 1000, 5000, 70_000] {
        for wide in [false, true] {
            let x = Tensor::randint(-(1 << 40), 1 << 40, [n])?;
            let x = if wide { x } else { x.remainder(50)?.to_dtype(DType::F32)?.sub(25.0)? };
            let (sorted, places) = x.sort(0, false)?;
            for k in [1, n / 3 + 1, n] {
                let (value, place) = x.kthvalue(k, 0, false)?;
                let at = k as isize - 1;
                assert_eq!(value.to_vec::<f64>()?, sorted.narrow(0, at, 1)?.to_vec::<f64>()?, "{n} {k}");
                // Of equal elements the one that a stable sort puts there.
                assert_eq!(place.to_vec::<i64>()?, places.narrow(0, at, 1)?.to_vec::<i64>()?, "{n} {k}");
            }
            let mut plain = x.to_vec::<f64>()?;
            plain.sort_by(f64::total_cmp);
            assert_eq!(sorted.to_vec::<f64>()?, plain);
        }
        let x = Tensor::randn([n])?;
        x.narrow(0, n as isize / 2, 2)?.fill_(f64::NAN)?;
        assert_eq!(x.median(0)?.1.item::<i64>()?, n as i64 / 2);
        let mut plain: Vec<f32> = x.to_vec::<f32>()?.into_iter().filter(|v| !v.is_nan()).collect();
        plain.sort_by(f32::total_cmp);
        assert_eq!(x.nanmedian(..)?.item::<f32>()?, plain[(plain.len() - 1) / 2]);
    }
    Ok(())
}

#[test]
fn flips_of_every_block_size() -> Result<()> {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
        for (rows, columns) in [(3usize, 1usize), (5, 15), (4, 16), (3, 83)] {
            let x = Tensor::arange(0, (rows * columns) as i64, 1)?.reshape([rows, columns])?.to_dtype(dtype)?;
            let at = |t: &Tensor| t.to_vec::<f64>();
            let (plain, mut want) = (at(&x)?, Vec::new());
            for r in (0..rows).rev() {
                want.extend((0..columns).rev().map(|c| plain[r * columns + c]));
            }
            assert_eq!(at(&x.flip([0, 1])?)?, want);
            // A strided view gives the same as its copy.
            assert_eq!(at(&x.t()?.flip([0])?)?, at(&x.t()?.contiguous()?.flip([0])?)?);
        }
    }
    Ok(())
}

#[test]
fn products_of_integers_wrap() -> Result<()> {
    let _turn = crate::turn();
    rng::manual_seed(4);
    let (m, k, n) = (37, 300, 45);
    let (a, b) = (Tensor::randint(-1000, 1000, [m, k])?, Tensor::randint(-1000, 1000, [k, n])?);
    let (x, y) = (a.to_vec::<i64>()?, b.to_vec::<i64>()?);
    let mut want = vec![0i64; m * n];
    for i in 0..m {
        for p in 0..k {
            for j in 0..n {
                want[i * n + j] += x[i * k + p] * y[p * n + j];
            }
        }
    }
    let product = |dtype| a.to_dtype(dtype)?.matmul(&b.to_dtype(dtype)?)?.to_vec::<i64>();
    assert_eq!(product(DType::I64)?, want);
    assert_eq!(product(DType::I32)?, want.iter().map(|&v| v as i32 as i64).collect::<Vec<_>>());
    assert_eq!(product(DType::U8)?, want.iter().map(|&v| v as u8 as i64).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn indices_by_the_chunk() -> Result<()> {
    let _turn = crate::turn();
    rng::manual_seed(5);
    let n = 3000usize;
    let index = Tensor::randint(0, 40, [n])?;
    let source = Tensor::randint(0, 9, [n, 17])?.to_dtype(DType::F32)?;
    let (places, values) = (index.to_vec::<i64>()?, source.to_vec::<f32>()?);
    let mut want = vec![0f32; 40 * 17];
    for (i, &place) in places.iter().enumerate() {
        (0..17).for_each(|c| want[place as usize * 17 + c] += values[i * 17 + c]);
    }
    let zeros = Tensor::zeros([40, 17])?;
    assert_eq!(zeros.index_add(0, &index, &source, 1)?.to_vec::<f32>()?, want);
    let across = zeros.t()?.contiguous()?.index_add(1, &index, &source.t()?, 1)?;
    assert_eq!(across.t()?.contiguous()?.to_vec::<f32>()?, want);
    let first = source.select(1, 0)?;
    let column: Vec<f32> = want.iter().step_by(17).copied().collect();
    assert_eq!(Tensor::zeros([40])?.scatter_add(0, &index, &first)?.to_vec::<f32>()?, column);
    assert_eq!(index.bincount(None, 0)?.sum(..)?.item::<i64>()?, n as i64);
    // One index too large at the end of many.
    let wrong = index.add(&Tensor::arange(0, n as i64, 1)?.eq(n as i64 - 1)?.to_dtype(DType::I64)?.mul(40)?)?;
    let error = zeros.index_select(0, &wrong).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("out of bounds for dimension 0 with size 40"), "{error}");
    Ok(())
}

#[test]
fn resized_by_bands_and_by_planes() -> Result<()> {
    let _turn = crate::turn();
    rng::manual_seed(6);
    use InterpolateMode::{Bicubic, Bilinear};
    for mode in [Bilinear, Bicubic] {
        // One plane of several bands; the same rows as many planes, each with one more column.
        let x = Tensor::randn_with([1, 1, 90, 70], DType::F64)?.requires_grad_(true)?;
        let options = InterpolateOptions::size([301, 203]).mode(mode);
        let y = x.interpolate(&options)?;
        // A resize is linear and keeps constants: weights of each output add up to one.
        let ones = x.ones_like()?.interpolate(&options)?;
        assert!(ones.sub(1.0)?.abs()?.max(..)?.item::<f64>()? < 1e-12);
        // The gradient is the transpose: <y, dy> = <x, dx>.
        let dy = y.detach().randn_like()?;
        y.mul(&dy)?.sum(..)?.backward()?;
        let (left, right) = (y.mul(&dy)?.sum(..)?, x.mul(&x.grad().unwrap())?.sum(..)?);
        assert!((left.item::<f64>()? - right.item::<f64>()?).abs() < 1e-8);
        let wide = x.detach().expand([3, 2, 90, 70])?.interpolate(&options)?;
        assert!(wide.select(0, 2)?.select(0, 1)?.equal(&y.detach().select(0, 0)?.select(0, 0)?)?);
    }
    Ok(())
}

#[test]
fn distances_by_product_and_by_rows() -> Result<()> {
    let _turn = crate::turn();
    rng::manual_seed(7);
    for (n, m) in [(3usize, 4usize), (30, 4), (40, 50)] {
        let (a, b) = (Tensor::randn_with([2, n, 19], DType::F64)?, Tensor::randn_with([m, 19], DType::F64)?);
        for p in [0.0, 1.0, 2.0, 3.0, f64::INFINITY] {
            let want = a.unsqueeze(-2)?.sub(&b.unsqueeze(-3)?)?.norm_dims(p, [-1], false)?;
            assert!(a.cdist(&b, p)?.sub(&want)?.abs()?.max(..)?.item::<f64>()? < 1e-10, "{n} {m} {p}");
        }
    }
    Ok(())
}
