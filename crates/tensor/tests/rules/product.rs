//! Batched products whose dimensions do not merge (heads viewed from one projection), and products of groups.

use rushlight_core::{DType, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{gradcheck, gradgradcheck};

/// `[batch, heads, time, width]` viewed from `[batch, time, heads * width]`, as attention written by hand does.
fn heads(x: &Tensor, count: usize) -> Result<Tensor> {
    let &[batch, time, width] = x.shape() else { panic!("three dimensions") };
    x.reshape([batch, time, count, width / count])?.transpose(1, 2)
}

fn close(a: &Tensor, b: &Tensor) -> Result<()> {
    assert!(a.allclose(b, 1e-12, 1e-12)?, "{a}\n{b}");
    Ok(())
}

#[test]
fn batches_that_do_not_merge_equal_packed_ones() -> Result<()> {
    // A loop runs over few heads, many small ones are packed; either dimension may be the larger.
    for (batch, count, time, width) in
        [(2, 3, 5, 4), (9, 2, 3, 2), (2, 9, 3, 2), (16, 16, 2, 1), (1, 4, 3, 2), (5, 1, 3, 2)]
    {
        let shape = [batch, time, count * width];
        let leaf = || Tensor::randn_with(shape, DType::F64)?.requires_grad_(true);
        let (q, k) = (leaf()?, leaf()?);
        let scores = heads(&q, count)?.matmul(&heads(&k, count)?.transpose(-2, -1)?)?;
        let packed = heads(&q.detach(), count)?
            .contiguous()?
            .matmul(&heads(&k.detach(), count)?.transpose(-2, -1)?.contiguous()?)?;
        close(&scores, &packed)?;
        let out = scores.matmul(&heads(&k, count)?)?;
        close(&out, &packed.matmul(&heads(&k.detach(), count)?.contiguous()?)?)?;
        out.sum(..)?.backward()?;
        let (dense_q, dense_k) = (q.detach().requires_grad_(true)?, k.detach().requires_grad_(true)?);
        let [hq, hk] = [heads(&dense_q, count)?.contiguous()?, heads(&dense_k, count)?.contiguous()?];
        hq.matmul(&hk.transpose(-2, -1)?.contiguous()?)?.matmul(&hk)?.sum(..)?.backward()?;
        close(&q.grad().unwrap(), &dense_q.grad().unwrap())?;
        close(&k.grad().unwrap(), &dense_k.grad().unwrap())?;
    }
    Ok(())
}

#[test]
fn a_broadcast_operand_is_not_expanded() -> Result<()> {
    let a = Tensor::randn_with([7, 3, 4, 5], DType::F64)?.transpose(0, 1)?;
    let b = Tensor::randn_with([1, 7, 5, 2], DType::F64)?;
    close(&a.matmul(&b)?, &a.contiguous()?.matmul(&b.expand([3, 7, 5, 2])?.contiguous()?)?)
}

#[test]
fn groups_equal_products_one_by_one() -> Result<()> {
    let rows = |shape: &[usize]| Tensor::randn_with(shape, DType::F64)?.requires_grad_(true);
    let offs = Tensor::new_with([2, 2, 5], DType::I32)?;
    // Two rows follow the last group; the second group is empty.
    let (x, w) = (rows(&[7, 4])?, rows(&[3, 4, 2])?);
    let y = x.grouped_mm(&w, Some(&offs))?;
    close(&y.narrow(0, 0, 2)?, &x.narrow(0, 0, 2)?.mm(&w.select(0, 0)?)?)?;
    close(&y.narrow(0, 2, 3)?, &x.narrow(0, 2, 3)?.mm(&w.select(0, 2)?)?)?;
    assert_eq!(y.narrow(0, 5, 2)?.to_vec::<f64>()?, [0.0; 4]);
    let columns = rows(&[2, 7])?;
    let z = w.grouped_mm(&columns, Some(&offs))?;
    close(&z.narrow(1, 2, 3)?, &w.select(0, 2)?.mm(&columns.narrow(1, 2, 3)?)?)?;
    let sums = x.transpose(0, 1)?.grouped_mm(&x, Some(&offs))?;
    assert_eq!(sums.select(0, 1)?.to_vec::<f64>()?, [0.0; 16]);
    close(&sums.select(0, 0)?, &x.narrow(0, 0, 2)?.transpose(0, 1)?.mm(&x.narrow(0, 0, 2)?)?)?;
    for (a, b) in [(&x, &w), (&w, &columns), (&columns, &x)] {
        let call = |xs: &[Tensor]| Ok(vec![xs[0].grouped_mm(&xs[1], Some(&offs))?]);
        gradcheck(call, &[a.clone(), b.clone()])?;
        gradgradcheck(call, &[a.clone(), b.clone()])?;
    }
    for wrong in [vec![2i32, 1, 5], vec![2, 2, 8], vec![-1, 2, 5], vec![2, 5]] {
        assert!(x.grouped_mm(&w, Some(&Tensor::new_with(wrong, DType::I32)?)).is_err());
    }
    assert!(x.grouped_mm(&w, None).is_err() && w.grouped_mm(&w.transpose(1, 2)?, Some(&offs)).is_err());
    assert!(x.grouped_mm(&w, Some(&Tensor::new([2i64, 2, 5])?)).is_err());
    Ok(())
}
