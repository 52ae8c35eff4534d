//! Lists, dictionaries and sequences.

use rushlight_core::{DType, Result};
use rushlight_nn::{
    Forward, Linear, Module, ModuleDict, ModuleList, Parameter, ParameterDict, ParameterList, ReLU, Sequential, Tanh,
};
use rushlight_tensor::Tensor;

fn linear() -> Result<Linear> {
    Linear::builder(2, 2).bias(false).build()
}

fn keys(module: &impl Module) -> Vec<String> {
    module.state_dict().into_keys().collect()
}

#[test]
fn sequences_name_their_layers_and_refuse_bad_names() -> Result<()> {
    let net = Sequential::from([linear()?, linear()?]).append(ReLU).add_module("out", linear()?)?.append(Tanh);
    assert_eq!(net.names(), ["0", "1", "2", "out", "4"]);
    assert_eq!((net.len(), net.is_empty(), net.iter().count()), (5, false, 5));
    assert_eq!(net.get(2).unwrap().type_name(), "ReLU");
    assert!(net.get(5).is_none());
    assert!(net.layer::<Linear>("2").err().unwrap().to_string().contains("layer '2' is a ReLU"));
    assert!(net.layer::<Linear>("7").err().unwrap().to_string().contains("no layer '7'"));
    for name in ["", "a.b"] {
        assert!(Sequential::new().add_module(name, ReLU).is_err());
    }
    assert!(Sequential::new().append(ReLU).add_module("0", ReLU).err().unwrap().to_string().contains("already"));
    // A number in use is skipped.
    assert_eq!(Sequential::new().add_module("1", ReLU)?.append(Tanh).names(), ["1", "2"]);
    let x = Tensor::ones([2])?;
    assert!(Sequential::new().forward(&x)?.is_same(&x));
    Ok(())
}

#[test]
fn lists_and_dictionaries_of_modules() -> Result<()> {
    let mut list: ModuleList<Linear> = vec![linear()?].into();
    list.push(linear()?);
    assert_eq!(keys(&list), ["0.weight", "1.weight"]);
    let mut x = Tensor::ones([1, 2])?;
    for layer in &list {
        x = layer.forward(&x)?;
    }
    let list = list.to(DType::F64)?;
    assert!(list.iter().all(|layer| layer.weight.dtype() == DType::F64));

    let mixed: ModuleList = vec![Box::new(linear()?) as Box<dyn Forward>, Box::new(ReLU)].into();
    assert_eq!(mixed.repr(), "ModuleList(\n  (0): Linear(in_features=2, out_features=2, bias=False)\n  (1): ReLU()\n)");

    let mut dict = ModuleDict::default();
    assert!(dict.insert("b", linear()?)?.is_none());
    dict.insert("a", linear()?)?;
    assert_eq!(keys(&dict), ["b.weight", "a.weight"]);
    assert!(dict.insert("x.y", linear()?).is_err());
    assert!(dict.contains_key("a") && dict.get("a").is_ok());
    assert!(dict.get("c").err().unwrap().to_string().contains("no 'c' among [\"b\", \"a\"]"));
    assert!(dict.remove("b").is_some() && dict.len() == 1 && !dict.is_empty());
    assert_eq!(dict.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
    Ok(())
}

#[test]
fn lists_and_dictionaries_of_parameters() -> Result<()> {
    let parameter = |shape: &[usize]| Parameter::new(&Tensor::ones(shape)?);
    let list: ParameterList = [parameter(&[2])?, parameter(&[2, 3])?].into_iter().collect();
    assert_eq!((keys(&list), list.num_parameters()), (vec!["0".to_owned(), "1".to_owned()], 8));
    assert_eq!(
        list.repr(),
        "ParameterList(\n  (0): Parameter containing: [float32 of size 2]\n  (1): Parameter containing: [float32 of size 2x3]\n)"
    );
    let mut dict = ParameterDict::default();
    dict.insert("left", parameter(&[1])?)?;
    assert_eq!(keys(&dict), ["left"]);
    let dict = dict.to(DType::F64)?;
    assert_eq!(dict.get("left")?.dtype(), DType::F64);
    assert!(dict.get("left")?.requires_grad());
    Ok(())
}
