//! Layers as ONNX nodes: convolutions, pooling, norms, attention, resizing.

use super::super::proto::Attribute::{Float, Int, Ints, Str, Tensor as Constant};
use super::call::{Call, tensor};
use super::graph::{Exporter, Val};
use super::pointwise::{Names, one};
use super::reduce::reduce;
use super::shape::reshape;
use rushlight_core::{DType, Result};
use rushlight_tensor::Tensor;
use std::rc::Rc;

pub(super) fn emit(x: &mut Exporter, c: &Call) -> Names {
    let name = c.name.as_str();
    match name {
        "conv1d" | "conv2d" | "conv3d" => convolution(x, c, false),
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => convolution(x, c, true),
        "_convolution" | "convolution" => convolution(x, c, c.flag("transposed")?),
        "batch_norm" => batch_norm(x, c),
        "instance_norm" => instance_norm(x, c),
        "layer_norm" => {
            let width = c.ints("normalized_shape", 0)?.unwrap_or_default();
            let input = c.input()?;
            let a = x.name(&input)?;
            let weight = match c.tensor("weight")? {
                Some(weight) => x.name(&weight)?,
                None => filled(x, &width, 1.0, input[0].dtype())?,
            };
            let attributes =
                vec![("axis", Int(-(width.len() as i64))), ("epsilon", Float(c.float("eps", 1e-5)? as f32))];
            one(match c.tensor("bias")? {
                Some(bias) => {
                    let bias = x.name(&bias)?;
                    x.node("LayerNormalization", &[&a, &weight, &bias], attributes)
                }
                None => x.node("LayerNormalization", &[&a, &weight], attributes),
            })
        }
        "rms_norm" => {
            let width = c.ints("normalized_shape", 0)?.unwrap_or_default();
            let (input, dtype) = (c.input()?, c.dtype()?);
            let a = x.name(&input)?;
            let rank = input[0].rank() as i64;
            let dims: Vec<i64> = (rank - width.len() as i64..rank).collect();
            let square = x.op("Mul", &[&a, &a]);
            let mean = reduce(x, "ReduceMean", &square, Some(&dims), true)?;
            let eps = x.float(c.float("eps", f64::from(f32::EPSILON))?, dtype)?;
            let mean = x.op("Add", &[&mean, &eps]);
            let root = x.op("Sqrt", &[&mean]);
            let out = x.op("Div", &[&a, &root]);
            one(match c.tensor("weight")? {
                Some(weight) => {
                    let weight = x.name(&weight)?;
                    x.op("Mul", &[&out, &weight])
                }
                None => out,
            })
        }
        "group_norm" => group_norm(x, c),
        "scaled_dot_product_attention" => attention(x, c),
        "interpolate" => resize(x, c),
        "cross_entropy" => {
            if c.float("label_smoothing", 0.0)? != 0.0 || tensor(c.need("target")?)?[0].dtype().is_float() {
                return c.refuse("label smoothing or probabilities as targets");
            }
            let (a, b) = (x.name(&c.input()?)?, x.name(&tensor(c.need("target")?)?)?);
            let attributes = vec![
                ("reduction", Str(c.text("reduction", "mean")?)),
                ("ignore_index", Int(c.int("ignore_index", -100)?)),
            ];
            one(match c.tensor("weight")? {
                Some(weight) => {
                    let weight = x.name(&weight)?;
                    x.node("SoftmaxCrossEntropyLoss", &[&a, &b, &weight], attributes)
                }
                None => x.node("SoftmaxCrossEntropyLoss", &[&a, &b], attributes),
            })
        }
        _ if name.starts_with("max_pool") || name.starts_with("avg_pool") => pool(x, c),
        _ if name.starts_with("adaptive_") => adaptive(x, c),
        _ => Ok(None),
    }
}

/// A constant of one value.
fn filled(x: &mut Exporter, shape: &[i64], value: f64, dtype: DType) -> Result<String> {
    let shape: Vec<usize> = shape.iter().map(|&n| n.max(0) as usize).collect();
    let ones = Tensor::ones(&shape[..])?.to_dtype(DType::F64)?;
    x.constant(ones.mul(value)?.to_dtype(dtype)?)
}

/// Runs a node on an input with a batch dimension, which an input without one is given.
fn batched(
    x: &mut Exporter,
    input: &Rc<[Tensor]>,
    spatial: usize,
    run: impl FnOnce(&mut Exporter, &str) -> Result<String>,
) -> Result<String> {
    let name = x.name(input)?;
    if input[0].rank() == spatial + 2 {
        return run(x, &name);
    }
    let first = x.ints(&[0])?;
    let name = x.op("Unsqueeze", &[&name, &first]);
    let out = run(x, &name)?;
    Ok(x.op("Squeeze", &[&out, &first]))
}

fn convolution(x: &mut Exporter, c: &Call, is_transposed: bool) -> Names {
    let (input, weight) = (c.input()?, tensor(c.need("weight")?)?);
    let spatial = weight[0].rank() - 2;
    let kernel: Vec<i64> = weight[0].shape()[2..].iter().map(|&n| n as i64).collect();
    let listed = |name: &str, otherwise: i64| -> Result<Vec<i64>> {
        Ok(c.ints(name, spatial)?.unwrap_or_else(|| vec![otherwise; spatial]))
    };
    let (stride, dilation) = (listed("stride", 1)?, listed("dilation", 1)?);
    let pads = match c.text("padding", "")?.as_str() {
        "same" => {
            let total: Vec<i64> = kernel.iter().zip(&dilation).map(|(k, d)| d * (k - 1)).collect();
            total.iter().map(|t| t / 2).chain(total.iter().map(|t| t - t / 2)).collect()
        }
        "valid" => vec![0; 2 * spatial],
        _ => listed("padding", 0)?.repeat(2),
    };
    let mut attributes = vec![
        ("kernel_shape", Ints(kernel)),
        ("strides", Ints(stride)),
        ("pads", Ints(pads)),
        ("dilations", Ints(dilation)),
        ("group", Int(c.int("groups", 1)?)),
    ];
    if is_transposed {
        attributes.push(("output_padding", Ints(listed("output_padding", 0)?)));
    }
    let w = x.name(&weight)?;
    let bias = c.tensor("bias")?.map(|b| x.name(&b)).transpose()?;
    one(batched(x, &input, spatial, |x, a| {
        let op = if is_transposed { "ConvTranspose" } else { "Conv" };
        Ok(match &bias {
            Some(bias) => x.node(op, &[a, &w, bias], attributes),
            None => x.node(op, &[a, &w], attributes),
        })
    })?)
}

/// The number of spatial dimensions in a name such as `max_pool2d`.
fn spatial(name: &str) -> usize {
    name.chars().find_map(|c| c.to_digit(10)).map_or(2, |d| d as usize)
}

fn pool(x: &mut Exporter, c: &Call) -> Names {
    let n = spatial(&c.name);
    let kernel = c.ints("kernel_size", n)?.unwrap_or_default();
    let stride = c.ints("stride", n)?.unwrap_or_else(|| kernel.clone());
    let pads = c.ints("padding", n)?.unwrap_or_else(|| vec![0; n]).repeat(2);
    let mut attributes = vec![
        ("kernel_shape", Ints(kernel)),
        ("strides", Ints(stride)),
        ("pads", Ints(pads)),
        ("ceil_mode", Int(i64::from(c.flag("ceil_mode")?))),
    ];
    let is_max = c.name.starts_with("max");
    if is_max {
        if c.flag("return_indices")? {
            return c.refuse("return_indices");
        }
        attributes.push(("dilations", Ints(c.ints("dilation", n)?.unwrap_or_else(|| vec![1; n]))));
    } else {
        if c.get("divisor_override").is_some() {
            return c.refuse("divisor_override");
        }
        attributes.push(("count_include_pad", Int(i64::from(c.flag("count_include_pad")?))));
    }
    let op = if is_max { "MaxPool" } else { "AveragePool" };
    one(batched(x, &c.input()?, n, |x, a| Ok(x.node(op, &[a], attributes)))?)
}

fn adaptive(x: &mut Exporter, c: &Call) -> Names {
    let (input, n) = (c.input()?, spatial(&c.name));
    let is_max = c.name.contains("max");
    if c.flag("return_indices")? {
        return c.refuse("return_indices");
    }
    let rank = input[0].rank();
    let out = c.result()?;
    let sizes: Vec<i64> = out[0].shape()[rank - n..].iter().map(|&s| s as i64).collect();
    if sizes.iter().all(|&s| s == 1) {
        let name = x.name(&input)?;
        let dims: Vec<i64> = (rank - n..rank).map(|d| d as i64).collect();
        return one(reduce(x, if is_max { "ReduceMax" } else { "ReduceMean" }, &name, Some(&dims), true)?);
    }
    let given: Vec<i64> = input[0].shape()[rank - n..].iter().map(|&s| s as i64).collect();
    let is_fixed = input.iter().all(|t| t.shape()[rank - n..] == input[0].shape()[rank - n..]);
    if !is_fixed || given.iter().zip(&sizes).any(|(a, b)| a % b != 0) {
        return c.refuse("an output size that does not divide the input's, or a dynamic input");
    }
    let kernel: Vec<i64> = given.iter().zip(&sizes).map(|(a, b)| a / b).collect();
    let attributes = vec![("kernel_shape", Ints(kernel.clone())), ("strides", Ints(kernel))];
    let op = if is_max { "MaxPool" } else { "AveragePool" };
    one(batched(x, &input, n, |x, a| Ok(x.node(op, &[a], attributes)))?)
}

fn batch_norm(x: &mut Exporter, c: &Call) -> Names {
    let input = c.input()?;
    let (mean, variance) = (tensor(c.need("running_mean")?)?, tensor(c.need("running_var")?)?);
    let (width, dtype) = (mean[0].numel() as i64, mean[0].dtype());
    let a = x.name(&input)?;
    let weight = match c.tensor("weight")? {
        Some(weight) => x.name(&weight)?,
        None => filled(x, &[width], 1.0, dtype)?,
    };
    let bias = match c.tensor("bias")? {
        Some(bias) => x.name(&bias)?,
        None => filled(x, &[width], 0.0, dtype)?,
    };
    let (mean, variance) = (x.name(&mean)?, x.name(&variance)?);
    let attributes = vec![("epsilon", Float(c.float("eps", 1e-5)? as f32))];
    one(x.node("BatchNormalization", &[&a, &weight, &bias, &mean, &variance], attributes))
}

fn instance_norm(x: &mut Exporter, c: &Call) -> Names {
    let input = c.input()?;
    if !c.flag("use_input_stats")? {
        return batch_norm(x, c);
    }
    let (width, dtype) = (input[0].shape()[1] as i64, input[0].dtype());
    let a = x.name(&input)?;
    let weight = match c.tensor("weight")? {
        Some(weight) => x.name(&weight)?,
        None => filled(x, &[width], 1.0, dtype)?,
    };
    let bias = match c.tensor("bias")? {
        Some(bias) => x.name(&bias)?,
        None => filled(x, &[width], 0.0, dtype)?,
    };
    let attributes = vec![("epsilon", Float(c.float("eps", 1e-5)? as f32))];
    one(x.node("InstanceNormalization", &[&a, &weight, &bias], attributes))
}

/// Groups are instances of one channel each; then come the channels' factors.
fn group_norm(x: &mut Exporter, c: &Call) -> Names {
    let input = c.input()?;
    let (groups, dtype, rank) = (c.int("num_groups", 1)?, input[0].dtype(), input[0].rank());
    let a = x.name(&input)?;
    let sizes = x.shape_of(&input)?;
    let flat = reshape(x, &a, &[sizes[0].clone(), Val::int(groups), Val::int(-1)])?;
    let (ones, zeros) = (filled(x, &[groups], 1.0, dtype)?, filled(x, &[groups], 0.0, dtype)?);
    let attributes = vec![("epsilon", Float(c.float("eps", 1e-5)? as f32))];
    let normal = x.node("InstanceNormalization", &[&flat, &ones, &zeros], attributes);
    let mut out = reshape(x, &normal, &sizes)?;
    for (name, op) in [("weight", "Mul"), ("bias", "Add")] {
        if let Some(factor) = c.tensor(name)? {
            let mut factor = x.name(&factor)?;
            if rank > 2 {
                let axes = x.ints(&(1..rank as i64 - 1).collect::<Vec<_>>())?;
                factor = x.op("Unsqueeze", &[&factor, &axes]);
            }
            out = x.op(op, &[&out, &factor]);
        }
    }
    one(out)
}

/// Keys or values with each head repeated, for grouped queries.
fn repeated(x: &mut Exporter, all: &Rc<[Tensor]>, times: i64) -> Result<String> {
    let name = x.name(all)?;
    if times == 1 {
        return Ok(name);
    }
    let rank = all[0].rank();
    let axes = x.ints(&[rank as i64 - 2])?;
    let name = x.op("Unsqueeze", &[&name, &axes]);
    let mut counts = vec![1; rank + 1];
    counts[rank - 2] = times;
    let counts = x.ints(&counts)?;
    let name = x.op("Tile", &[&name, &counts]);
    let mut sizes = x.shape_of(all)?;
    sizes[rank - 3] = x.combine("Mul", &sizes[rank - 3].clone(), &Val::int(times))?;
    reshape(x, &name, &sizes)
}

fn attention(x: &mut Exporter, c: &Call) -> Names {
    let [query, key, value] = ["query", "key", "value"].map(|name| c.need(name).and_then(tensor));
    let (query, key, value) = (query?, key?, value?);
    if c.float("dropout_p", 0.0)? != 0.0 {
        return c.refuse("dropout; call model.eval() before the export");
    }
    let (rank, dtype) = (query[0].rank(), query[0].dtype());
    let times =
        if c.flag("enable_gqa")? { (query[0].shape()[rank - 3] / key[0].shape()[rank - 3].max(1)) as i64 } else { 1 };
    let (q, k, v) = (x.name(&query)?, repeated(x, &key, times)?, repeated(x, &value, times)?);
    let width = query[0].shape()[rank - 1] as f64;
    let scale = x.float(c.float("scale", 1.0 / width.sqrt())?, dtype)?;
    let q = x.op("Mul", &[&q, &scale]);
    let mut order: Vec<i64> = (0..key[0].rank() as i64).collect();
    let last = order.len() - 1;
    order.swap(last - 1, last);
    let k = x.node("Transpose", &[&k], vec![("perm", Ints(order))]);
    let mut scores = x.op("MatMul", &[&q, &k]);
    let lowest = x.float(f64::NEG_INFINITY, dtype)?;
    if c.flag("is_causal")? {
        let (rows, columns) = (x.size_of(&query, rank - 2)?, x.size_of(&key, rank - 2)?);
        let shape = x.sizes(&[rows, columns])?;
        let one = Tensor::new_with([1.0f32], DType::F32)?;
        let ones = x.node("ConstantOfShape", &[&shape], vec![("value", Constant(one))]);
        let triangle = x.node("Trilu", &[&ones], vec![("upper", Int(0))]);
        let triangle = x.cast(&triangle, DType::Bool)?;
        scores = x.op("Where", &[&triangle, &scores, &lowest]);
    }
    if let Some(mask) = c.tensor("attn_mask")? {
        let name = x.name(&mask)?;
        scores = match mask[0].dtype() {
            DType::Bool => x.op("Where", &[&name, &scores, &lowest]),
            _ => x.op("Add", &[&scores, &name]),
        };
    }
    let weights = x.node("Softmax", &[&scores], vec![("axis", Int(-1))]);
    one(x.op("MatMul", &[&weights, &v]))
}

fn resize(x: &mut Exporter, c: &Call) -> Names {
    let input = c.input()?;
    let name = x.name(&input)?;
    let aligned = c.flag("align_corners")?;
    let coordinates = if aligned { "align_corners" } else { "half_pixel" };
    let mode = c.text("mode", "nearest")?;
    let mut attributes = match mode.as_str() {
        "nearest" => vec![
            ("mode", Str("nearest".into())),
            ("coordinate_transformation_mode", Str("asymmetric".into())),
            ("nearest_mode", Str("floor".into())),
        ],
        "linear" | "bilinear" | "trilinear" => {
            vec![("mode", Str("linear".into())), ("coordinate_transformation_mode", Str(coordinates.into()))]
        }
        "bicubic" => vec![
            ("mode", Str("cubic".into())),
            ("coordinate_transformation_mode", Str(coordinates.into())),
            ("cubic_coeff_a", Float(-0.75)),
        ],
        other => return c.refuse(&format!("mode '{other}'")),
    };
    if c.flag("antialias")? {
        attributes.push(("antialias", Int(1)));
    }
    let spatial = input[0].rank() - 2;
    if let Some(size) = c.get("size") {
        let given = size.items().unwrap_or_else(|| vec![size.clone()]);
        let given = if given.len() == 1 { vec![given[0].clone(); spatial] } else { given };
        let mut sizes = vec![x.size_of(&input, 0)?, x.size_of(&input, 1)?];
        sizes.extend(given);
        let sizes = x.sizes(&sizes)?;
        return one(x.node("Resize", &[&name, "", "", &sizes], attributes));
    }
    let factors = c.need("scale_factor")?.on(0);
    let mut scales = vec![1.0f32, 1.0];
    match factors.items() {
        Ok(items) => {
            for item in items {
                scales.push(item.to_float()? as f32);
            }
        }
        Err(_) => scales.push(factors.to_float()? as f32),
    }
    while scales.len() < spatial + 2 {
        scales.push(scales[2]);
    }
    let scales = x.constant(Tensor::new_with(&scales[..], DType::F32)?)?;
    one(x.node("Resize", &[&name, "", &scales], attributes))
}
