//! `rushlight show`, `bench` and `convert`: exported models and files of weights.

use crate::{complain, print};
use rushlight_core::{DType, Error, Result};
use rushlight_graph::{IValue, Model, onnx};
use rushlight_io as io;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{StateDict, Value};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

const SHOW: &str = "Usage: rushlight show MODEL

Prints the program and the weights of a .rlm file, a TorchScript archive or an ONNX file.";
const BENCH: &str = "Usage: rushlight bench MODEL [--size NAME=N]... [--input DTYPE[N,...]]... [--steps N]

Times a model on random inputs. --size gives the sizes with names (1 if not given). --input gives the inputs of a model whose program
does not say them, such as a TorchScript archive: --input float32[1,3,224,224].";
const CONVERT: &str = "Usage: rushlight convert [--freeze] A B

Converts a file; its ending says the format. --freeze writes a program for inference: constants and batch norms folded.

  to .rlm                              from a .rlm file, a TorchScript or torch.export (.pt2) archive, an ONNX file
  to .onnx                             from a .rlm, .pt2 or ONNX file, whose programs say the sizes of their inputs
  to .safetensors, .npz, .pt           the weights of any of these, of .pt, .npz and .safetensors files, and of sharded folders";

/// Runs one of the commands.
pub fn command(name: &str, arguments: &[OsString]) -> u8 {
    let (usage, run): (_, fn(&[String]) -> Result<()>) = match name {
        "show" => (SHOW, show),
        "bench" => (BENCH, bench),
        _ => (CONVERT, convert),
    };
    let arguments: Vec<String> = arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if arguments.iter().any(|a| a == "-h" || a == "--help") {
        print(usage);
        return 0;
    }
    if arguments.is_empty() {
        complain(usage);
        return 2;
    }
    match run(&arguments) {
        Ok(()) => 0,
        Err(e) => {
            complain(&format!("rushlight {name}: {e}"));
            1
        }
    }
}

fn show(arguments: &[String]) -> Result<()> {
    let [path] = arguments else { return Err(Error::value("it takes one file")) };
    let model = Model::load(path)?;
    print(model.text()?.trim_end());
    let state = model.state_dict();
    let mut table = String::from("\nweights:\n");
    let (mut elements, mut bytes) = (0, 0);
    for (name, tensor) in &state {
        table.push_str(&format!("  {name}  {}{:?}\n", tensor.dtype(), tensor.shape()));
        elements += tensor.numel();
        bytes += tensor.numel() * tensor.dtype().size();
    }
    table.push_str(&format!("{} tensors, {elements} elements, {bytes} bytes", state.len()));
    print(&table);
    Ok(())
}

/// An input's dtype and sizes.
fn random(dtype: &str, sizes: &[usize]) -> Result<Tensor> {
    let dtype = DType::ALL.into_iter().find(|d| d.name() == dtype);
    let dtype = dtype.ok_or_else(|| Error::value("--input takes a dtype and sizes, such as float32[1,3,224,224]"))?;
    if dtype.is_float() { Tensor::randn(sizes)?.to_dtype(dtype) } else { Tensor::zeros(sizes)?.to_dtype(dtype) }
}

fn bench(arguments: &[String]) -> Result<()> {
    let (mut path, mut steps, mut sizes, mut inputs) = (None, 20, HashMap::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| Error::value(format!("{argument} takes a value")));
        match argument.as_str() {
            "--steps" => steps = value()?.parse().map_err(|_| Error::value("--steps takes a number"))?,
            "--size" => {
                let pair = value()?.split_once('=').and_then(|(n, v)| Some((n.to_string(), v.parse::<usize>().ok()?)));
                sizes.extend([pair.ok_or_else(|| Error::value("--size takes NAME=N"))?]);
            }
            "--input" => {
                let text = value()?.trim_end_matches(']').to_string();
                let (dtype, dims) = text.split_once('[').ok_or_else(|| Error::value("--input takes DTYPE[N,...]"))?;
                let dims = dims.split(',').filter(|d| !d.trim().is_empty()).map(|d| d.trim().parse());
                let dims =
                    dims.collect::<Result<Vec<usize>, _>>().map_err(|_| Error::value("--input: sizes are numbers"))?;
                inputs.push(IValue::Tensor(random(dtype, &dims)?));
            }
            _ if path.is_none() && !argument.starts_with('-') => path = Some(argument),
            _ => return Err(Error::value(format!("unknown argument {argument}; see rushlight bench --help"))),
        }
    }
    let path = path.ok_or_else(|| Error::value("it takes a model"))?;
    let model = Model::load(path)?;
    if inputs.is_empty() {
        for param in &model.entry("forward")?.params {
            let Some(dims) = param.ty.as_ref().and_then(|t| t.args.as_ref()).filter(|_| model.root.is_none()) else {
                return Err(Error::value("the program does not say the sizes of its inputs: give --input"));
            };
            let size = |name: &str| name.parse().ok().or_else(|| sizes.get(name).copied()).unwrap_or(1);
            let dims: Vec<usize> = dims.iter().map(|d| size(&d.name)).collect();
            inputs.push(IValue::Tensor(random(param.ty.as_ref().map_or("", |t| &t.name), &dims)?));
        }
    }
    let mut times = rushlight_tensor::autograd::no_grad(|| -> Result<Vec<f64>> {
        model.forward(&inputs)?;
        (0..steps.max(1))
            .map(|_| {
                let start = Instant::now();
                model.forward(&inputs)?;
                Ok(start.elapsed().as_secs_f64() * 1e3)
            })
            .collect()
    })?;
    times.sort_by(f64::total_cmp);
    let shapes: Vec<String> = inputs.iter().map(ToString::to_string).collect();
    print(&format!(
        "{path} on {}: median {:.3} ms, fastest {:.3} ms, {} runs",
        shapes.join(", "),
        times[times.len() / 2],
        times[0],
        times.len()
    ));
    Ok(())
}

/// The weights of a file of any format.
fn weights(path: &Path) -> Result<StateDict> {
    if let Ok(model) = Model::load(path) {
        return Ok(model.state_dict());
    }
    match io::load(path)? {
        Value::Tensor(tensor) => Ok(StateDict::from_iter([("tensor".to_string(), tensor)])),
        value => value.to_state_dict(),
    }
}

fn convert(arguments: &[String]) -> Result<()> {
    let freeze = arguments.iter().any(|a| a == "--freeze");
    let files: Vec<&String> = arguments.iter().filter(|a| *a != "--freeze").collect();
    let [from, to] = files[..] else { return Err(Error::value("it takes two files: rushlight convert A B")) };
    let to = Path::new(to);
    let load = || if freeze { Model::load(from)?.freeze() } else { Model::load(from) };
    match to.extension().and_then(|e| e.to_str()) {
        Some("rlm") => load()?.save(to),
        Some("onnx") => onnx::out::save(&load()?, to, &[], &onnx::out::Options::default()),
        Some(_) if freeze => Err(Error::value("--freeze writes .rlm or .onnx files")),
        Some("safetensors" | "npz" | "pt" | "pth" | "bin") => io::save(weights(Path::new(from))?, to),
        _ => Err(Error::value("the second file must end in .rlm, .onnx, .safetensors, .npz or .pt")),
    }
}
