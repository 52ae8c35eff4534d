//! Ops that a host program registers.

use rushlight_core::Result;
use rushlight_graph::IValue;
use rushlight_graph::library::{Kernel, call, define, implement, schemas};
use rushlight_tensor::Tensor;
use std::sync::Arc;

#[test]
fn schemas_are_parsed() -> Result<()> {
    let schema = "my::op.out(Tensor(a!) x, int[2] n=[1, 2], *, float? scale=None, str s=\"a, b\") -> (Tensor, Tensor)";
    define(schema)?;
    assert!(schemas().iter().any(|known| known.starts_with("my::op.out")), "{:?}", schemas());
    let kernel: Kernel = Arc::new(|values| {
        assert_eq!((values.len(), values[1].ints()?), (4, vec![1, 2]));
        assert!(matches!(values[2], IValue::Float(scale) if scale == 0.5));
        assert_eq!(&*values[3].to_str()?, "a, b");
        Ok(IValue::None)
    });
    implement("my::op.out", "CPU", kernel)?;
    let x = || IValue::from(&Tensor::zeros([1]).unwrap());
    call("my::op.out", vec![x()], vec![("scale".into(), IValue::Float(0.5))])?;
    // What follows the star is given by name.
    assert!(call("my::op.out", vec![x(), IValue::Int(1), IValue::Float(0.5)], Vec::new()).is_err());
    assert!(define("my::op(Tensor x)").is_err() && define("my::op x -> Tensor").is_err());
    Ok(())
}

#[test]
fn calls_find_their_kernel() -> Result<()> {
    define("graph_test::twice(Tensor x, float by=2, *, bool flip=False) -> Tensor")?;
    let kernel: Kernel = Arc::new(|values| {
        let by = match values[1] {
            IValue::Int(by) => by as f64,
            IValue::Float(by) => by,
            _ => unreachable!("the schema has a number"),
        };
        Ok(IValue::from(&values[0].to_tensor()?.mul(by)?))
    });
    implement("graph_test::twice", "CPU", kernel)?;
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    let args = || vec![IValue::from(&x)];
    let out = call("graph_test::twice", args(), vec![("by".into(), IValue::Int(3))])?;
    assert_eq!(out.to_tensor()?.to_vec::<f32>()?, [3.0, 6.0]);
    let wrong = call("graph_test::twice", args(), vec![("flip".into(), IValue::Int(3))]).err().unwrap();
    assert!(wrong.to_string().contains("argument 'flip': expected bool, got int"), "{wrong}");
    assert!(call("graph_test::other", args(), Vec::new()).is_err());
    assert!(define("graph_test::twice(Tensor x) -> Tensor").is_err());
    assert!(implement("graph_test::twice", "Vulkan", Arc::new(|_| Ok(IValue::None))).is_err());
    Ok(())
}
