//! A state split into shards: each rank writes some of its tensors, one of them the rest.

use rushlight_core::{Device, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{Dict, Value};
use std::collections::HashMap;

/// First item of the pair that replaces a tensor; the second is its index.
const MARK: &str = "rushlight.tensor";

/// A state with indices in place of its tensors, and the tensors.
pub struct Split {
    pub skeleton: Value,
    pub tensors: Vec<Tensor>,
}

/// Extracts the tensors from a state. A tensor that occurs twice gets one index.
pub fn split(value: &Value) -> Result<Split> {
    let (mut tensors, mut numbers) = (Vec::new(), HashMap::new());
    let skeleton = replace(value, &mut |item| match item {
        Value::Tensor(t) => {
            let number = *numbers.entry(t.id()).or_insert_with(|| {
                tensors.push(t.clone());
                tensors.len() - 1
            });
            Ok(Some(Value::Tuple(vec![MARK.into(), number.into()])))
        }
        Value::Tuple(pair) if marked(pair).is_some() => {
            Err(Error::value(format!("Checkpoints: a state holds a tuple that begins with '{MARK}', a reserved name")))
        }
        _ => Ok(None),
    })?;
    Ok(Split { skeleton, tensors })
}

/// Inserts tensors into a skeleton.
pub fn join(skeleton: &Value, tensors: &HashMap<usize, Tensor>) -> Result<Value> {
    replace(skeleton, &mut |item| match item {
        Value::Tuple(pair) => match marked(pair) {
            Some(number) => {
                let tensor = usize::try_from(number).ok().and_then(|number| tensors.get(&number));
                let missing = || Error::io(format!("tensor {number} is in none of the shards"));
                Ok(Some(Value::Tensor(tensor.cloned().ok_or_else(missing)?)))
            }
            None => Ok(None),
        },
        _ => Ok(None),
    })
}

fn marked(pair: &[Value]) -> Option<i64> {
    match pair {
        [Value::Str(mark), Value::Int(number)] if mark == MARK => Some(*number),
        _ => None,
    }
}

/// A copy of a state in which `change` replaces some values.
fn replace(value: &Value, change: &mut dyn FnMut(&Value) -> Result<Option<Value>>) -> Result<Value> {
    if let Some(other) = change(value)? {
        return Ok(other);
    }
    let mut list = |items: &[Value]| items.iter().map(|item| replace(item, change)).collect::<Result<Vec<_>>>();
    Ok(match value {
        Value::List(items) => Value::List(list(items)?),
        Value::Tuple(items) => Value::Tuple(list(items)?),
        Value::Dict(d) => {
            Value::Dict(d.iter().map(|(k, v)| Ok((k.clone(), replace(v, change)?))).collect::<Result<Dict>>()?)
        }
        plain => plain.clone(),
    })
}

fn bytes(t: &Tensor) -> usize {
    t.numel() * t.dtype().size()
}

/// Assigns tensors to ranks: the largest first, each to the rank with the fewest bytes so far. All ranks compute the
/// same assignment if their tensors have the same sizes.
pub fn assign(tensors: &[Tensor], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(bytes(&tensors[i])), i));
    let (mut load, mut writer) = (vec![0usize; ranks.max(1)], vec![0; tensors.len()]);
    for i in order {
        let rank = (0..load.len()).min_by_key(|&rank| (load[rank], rank)).unwrap_or(0);
        load[rank] += bytes(&tensors[i]);
        writer[i] = rank;
    }
    writer
}

/// A hash that is equal for ranks whose states have tensors of the same dtypes and shapes in the same order.
pub fn fingerprint(tensors: &[Tensor]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut take = |number: u64| {
        for byte in number.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for t in tensors {
        t.dtype().to_string().bytes().for_each(|byte| take(byte.into()));
        take(t.shape().len() as u64);
        t.shape().iter().for_each(|&n| take(n as u64));
    }
    hash
}

/// A deep copy of a state in the CPU's memory. Shared tensors stay shared.
pub fn copied(value: &Value) -> Result<Value> {
    let mut copies = HashMap::new();
    no_grad(|| {
        replace(value, &mut |item| match item {
            Value::Tensor(t) => Ok(Some(Value::Tensor(match copies.get(&t.id()) {
                Some(copy) => Tensor::clone(copy),
                None => {
                    let copy = copy_of(t)?;
                    copies.insert(t.id(), copy.clone());
                    copy
                }
            }))),
            _ => Ok(None),
        })
    })
}

/// A copy of a tensor in the CPU's memory.
pub fn copy_of(t: &Tensor) -> Result<Tensor> {
    let t = t.detach();
    if t.device() == Device::Cpu { t.copy() } else { t.to(Device::Cpu) }
}
