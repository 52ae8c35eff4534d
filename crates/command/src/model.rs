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

const SHOW: &str = "Usage: rushlight show [--html FILE] MODEL

Prints the program and the weights of a .rlm file, a TorchScript or torch.export (.pt2) archive or an ONNX file.

  --html FILE  Writes a page instead: a picture of the program's graph with shapes, modules and weights. It needs no server;
               rushlight ui draws the .rlm files in a run's directory";
const BENCH: &str = "Usage: rushlight bench MODEL [--size NAME=N]... [--input DTYPE[N,...]]... [--steps N]

Times a model on random inputs. --size gives the sizes with names (1 if not given). --input gives the inputs of a model whose program
does not say them, such as a TorchScript archive: --input float32[1,3,224,224].";
const CONVERT: &str = "Usage: rushlight convert [OPTIONS] A B

Converts a file; its ending says the format.

  to .rlm                              from a .rlm file, a TorchScript or torch.export (.pt2) archive, an ONNX file
  to .onnx                             from any of these; a TorchScript archive does not say the sizes of its inputs: give --input
  to .ts, or .pt with --torchscript    a TorchScript archive, which PyTorch's torch.jit.load reads, from any of these
  to .safetensors, .npz, .pt           the weights of any of these, of .pt, .npz and .safetensors files, and of sharded folders
  to a folder (FOLDER/)                the same weights as Hugging Face has them: model.safetensors, or shards with their index

  --freeze                 Writes a program for inference: constants and batch norms folded. To .rlm, .onnx and TorchScript
  --torchscript            Writes the program to a .pt file, not the weights alone
  --input DTYPE[N,...]     An example of an input, once for each, to .onnx: --input float32[1,3,224,224]. Sizes with a colon between
                           them, such as float32[1:2,3,224,224], are tried and stay free
  --max-shard-size SIZE    Bytes of a shard, such as 500MB or 2GB; 5GB if not said. To folders";

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
    let (mut path, mut page) = (None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--html" => page = Some(rest.next().ok_or_else(|| Error::value("--html takes a file"))?),
            _ if path.is_none() && !argument.starts_with('-') => path = Some(argument),
            _ => return Err(Error::value(format!("unknown argument {argument}; see rushlight show --help"))),
        }
    }
    let path = path.ok_or_else(|| Error::value("it takes a model"))?;
    let model = Model::load(path)?;
    if let Some(page) = page {
        let name = Path::new(path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into_owned());
        std::fs::write(page, model.to_html(&name)?).map_err(|e| Error::io(format!("cannot write {page}: {e}")))?;
        print(&format!("{page}: open it in a browser"));
        return Ok(());
    }
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

/// The weights of a Hugging Face checkpoint in a shard, if nothing else is asked for: transformers' own bound.
const SHARD: usize = 5_000_000_000;

/// A number of bytes: `500MB`, `2GB`, `1024`.
fn bytes(text: &str) -> Result<usize> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[at..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(1usize),
        "KB" => Some(1000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        _ => None,
    };
    let count = factor.and_then(|factor| text[..at].parse::<usize>().ok()?.checked_mul(factor)).filter(|&n| n > 0);
    count.ok_or_else(|| {
        Error::value(format!("--max-shard-size takes a number of bytes such as 500MB or 2GB, not '{text}'"))
    })
}

/// Example inputs, of the first sizes of all, the second ones and so on.
fn examples(texts: &[&String]) -> Result<Vec<Vec<IValue>>> {
    let wrong = |text: &str| {
        Error::value(format!("--input takes a dtype and sizes, such as float32[1:2,3,224,224], not '{text}'"))
    };
    let mut inputs = Vec::new();
    for text in texts {
        let inner = text.strip_suffix(']').and_then(|t| t.split_once('[')).ok_or_else(|| wrong(text))?;
        let dims = inner.1.split(',').map(str::trim).filter(|d| !d.is_empty());
        let dims = dims.map(|d| d.split(':').map(|n| n.trim().parse::<usize>()).collect::<Result<Vec<_>, _>>());
        inputs.push((inner.0, dims.collect::<Result<Vec<_>, _>>().map_err(|_| wrong(text))?));
    }
    let count = inputs.iter().flat_map(|(_, dims)| dims.iter().map(Vec::len)).max().unwrap_or(1);
    if inputs.iter().flat_map(|(_, dims)| dims).any(|sizes| sizes.len() != 1 && sizes.len() != count) {
        return Err(Error::value("--input: sizes that stay free need as many examples each: float32[1:2,8:16]"));
    }
    (0..count)
        .map(|which| {
            let example = inputs.iter().map(|(dtype, dims)| {
                let sizes: Vec<usize> =
                    dims.iter().map(|sizes| sizes.get(which).copied().unwrap_or(sizes[0])).collect();
                random(dtype, &sizes).map(IValue::Tensor)
            });
            example.collect()
        })
        .collect()
}

fn convert(arguments: &[String]) -> Result<()> {
    let (mut freeze, mut script, mut inputs, mut shard, mut files) = (false, false, Vec::new(), None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| Error::value(format!("{argument} takes a value")));
        match argument.as_str() {
            "--freeze" => freeze = true,
            "--torchscript" => script = true,
            "--input" => inputs.push(value()?),
            "--max-shard-size" => shard = Some(bytes(value()?)?),
            other if other.starts_with("--") => {
                return Err(Error::value(format!("unknown argument {other}; see rushlight convert --help")));
            }
            _ => files.push(argument),
        }
    }
    let [from, to] = files[..] else { return Err(Error::value("it takes two files: rushlight convert A B")) };
    let is_folder = to.ends_with('/') || Path::new(to).is_dir();
    let to = Path::new(to);
    let ending = to.extension().and_then(|e| e.to_str()).filter(|_| !is_folder);
    let is_script = ending == Some("ts") || script && matches!(ending, Some("pt" | "pth"));
    for (given, option, wanted) in [
        (freeze, "--freeze", is_script || matches!(ending, Some("rlm" | "onnx"))),
        (script, "--torchscript", is_script),
        (!inputs.is_empty(), "--input", ending == Some("onnx")),
        (shard.is_some(), "--max-shard-size", is_folder),
    ] {
        if given && !wanted {
            return Err(Error::value(format!(
                "{option} has no meaning for {}; see rushlight convert --help",
                to.display()
            )));
        }
    }
    let load = || if freeze { Model::load(from)?.freeze() } else { Model::load(from) };
    match ending {
        _ if is_folder => save_folder(weights(Path::new(from))?, to, shard.unwrap_or(SHARD)),
        Some("rlm") => load()?.save(to),
        _ if is_script => load()?.save_torchscript(to),
        Some("onnx") => {
            let (model, examples) = (load()?, if inputs.is_empty() { Vec::new() } else { examples(&inputs)? });
            let named = |e: Error| {
                match model.root.is_some() && examples.is_empty() {
                true => e.within("the archive does not say the sizes of its inputs: give --input, as in --input float32[1,3,224,224]"),
                false => e,
            }
            };
            onnx::out::save(&model, to, &examples, &onnx::out::Options::default()).map_err(named)
        }
        Some("safetensors" | "npz" | "pt" | "pth" | "bin") => io::save(weights(Path::new(from))?, to),
        _ => Err(Error::value(
            "the second file must end in .rlm, .onnx, .ts, .safetensors, .npz or .pt, or be a folder: FOLDER/",
        )),
    }
}

/// Weights as Hugging Face's libraries read them.
fn save_folder(state: StateDict, folder: &Path, shard: usize) -> Result<()> {
    let taken = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let taken = taken.map(|name| name.to_string_lossy().into_owned());
    if let Some(name) =
        { taken }.find(|n| n.starts_with("model") && (n.ends_with(".safetensors") || n.ends_with(".json")))
    {
        return Err(Error::value(format!("{} has weights already: {name}; use a new folder", folder.display())));
    }
    io::safetensors::save_sharded(&state, folder, shard)
}
