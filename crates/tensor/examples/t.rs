use rushlight_tensor::*;
use rushlight_tensor::autograd::*;
fn main() -> rushlight_core::Result<()> {
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]])?.requires_grad_(true)?;
    let loss = (&x * &x)?.sum()?;
    loss.backward()?;
    println!("{:?}", x.grad().unwrap().to_vec::<f32>()?);
    let x = Tensor::new(2.0f64)?.requires_grad_(true)?;
    let y = x.pow(3)?;
    let dy = grad(&[&y], &[&x], Backward::default().create_graph(true))?.remove(0).unwrap();
    let ddy = grad(&[&dy], &[&x], Backward::default())?.remove(0).unwrap();
    println!("{} {}", dy.item::<f64>()?, ddy.item::<f64>()?);
    let a = Tensor::rand([8], rushlight_core::DType::F32)?; let b = a.copy()?;
    let t = std::time::Instant::now();
    for _ in 0..1000000 { std::hint::black_box(a.add(&b)?); }
    println!("add8 {} ns", t.elapsed().as_nanos() as f64 / 1e6);
    let w = a.copy()?.requires_grad_(true)?;
    let t = std::time::Instant::now();
    for _ in 0..2000 { let mut z = w.clone(); for _ in 0..50 { z = z.mul(&a)?.add(&b)?; } w.zero_grad(); z.sum()?.backward()?; }
    println!("chain {} us", t.elapsed().as_micros() as f64 / 2e3);
    Ok(())
}
