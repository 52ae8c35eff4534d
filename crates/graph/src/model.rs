//! Models that left their source: loading, running, saving.

use crate::interpret::Interpreter;
use crate::ivalue::{IValue, Object};
use crate::recorded::Recorded;
use crate::script::ast::{Function, Type};
use crate::script::parse;
use crate::unit::Unit;
use rushlight_core::{DType, Error, Result};
use rushlight_io::records::{self, Records};
use rushlight_io::safetensors;
use rushlight_tensor::state::StateDict;
use rushlight_tensor::{Tensor, To};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const PROGRAM: &str = "program.txt";
const WEIGHTS: &str = "weights.safetensors";
const EXTRA: &str = "extra/";
/// First line of a program; the number is the version of the format.
const HEADER: &str = "#: rlm 1";

/// A model as a program and its weights.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_graph as graph; }
/// use rushlight::{Tensor, graph::Model, state::StateDict};
/// let weights = StateDict::from_iter([("w".to_string(), Tensor::new([[1.0f32], [2.0]])?)]);
/// let text = "def forward(x: float32[batch, 2]):\n  return torch.relu(torch.matmul(x, weight(\"w\")))\n";
/// let model = Model::from_text(text, weights)?;
/// let y = model.forward(&[Tensor::new([[1.0f32, 3.0]])?.into()])?.to_tensor()?;
/// assert_eq!(y.to_vec::<f32>()?, [7.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Model {
    /// Functions, classes, constants and weights.
    pub unit: Unit,
    /// The module of a TorchScript archive; `None` for a plain program, whose entry is the function `forward`.
    pub root: Option<Arc<Object>>,
    /// Recordings of calls, for a frozen program.
    recorded: Option<Recorded>,
}

impl Model {
    /// A model of a program's text, whose entry is the function `forward`, and its weights.
    pub fn from_text(text: &str, weights: StateDict) -> Result<Self> {
        let mut unit = Unit::with_weights(weights);
        unit.define("", text)?;
        let model = Self { unit, root: None, recorded: None };
        model.entry("forward")?;
        Ok(model)
    }

    /// Reads a `.rlm` file, a TorchScript or `torch.export` archive or an ONNX file, detected by contents.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let read = || {
            let mut head = [0; 2];
            use std::io::Read;
            let n = std::fs::File::open(path)?.read(&mut head)?;
            if head[..n] != *b"PK" {
                return crate::onnx::load(path);
            }
            Self::from_records(&Records::open(path)?)
        };
        read().map_err(|e| e.within(&format!("load '{}'", path.display())))
    }

    /// Reads a `.rlm` or TorchScript archive that is in memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(b"PK") {
            return crate::onnx::from_bytes(bytes, None);
        }
        Self::from_records(&Records::from_bytes(bytes)?)
    }

    fn from_records(archive: &Records) -> Result<Self> {
        if archive.names().any(|n| n == PROGRAM) {
            return Self::rlm(archive);
        }
        if let Some(root) = crate::pt2::root(archive) {
            return crate::pt2::load(archive, &root);
        }
        Self::torchscript(archive)
    }

    fn torchscript(archive: &Records) -> Result<Self> {
        let root = archive.names().find_map(|n| n.strip_suffix("/constants.pkl")).map(str::to_string);
        let Some(root) = root else {
            return Err(Error::unsupported(
                "the archive is neither .rlm, TorchScript nor .pt2: it has no record 'program.txt', 'constants.pkl' or 'model.json'",
            ));
        };
        let mut unit = Unit::default();
        let code = format!("{root}/code/");
        let files: Vec<String> = archive.names().filter(|n| n.starts_with(&code)).map(str::to_string).collect();
        for name in files {
            let Some(inner) = name.strip_prefix(&code).and_then(|n| n.strip_suffix(".py")) else { continue };
            unit.define(&inner.replace('/', "."), &archive.text(&name)?)?;
        }
        let mut seen = HashMap::new();
        unit.constants = IValue::from_item(&archive.script_objects(&root, "constants")?, &mut seen).items()?;
        let module = IValue::from_item(&archive.script_objects(&root, "data")?, &mut HashMap::new());
        let IValue::Object(module) = module else {
            return Err(Error::io("the archive's data is not a module"));
        };
        Ok(Self { unit, root: Some(module), recorded: None })
    }

    fn rlm(archive: &Records) -> Result<Self> {
        let text = archive.text(PROGRAM)?;
        if text.lines().next() != Some(HEADER) {
            return Err(Error::unsupported(format!("the program does not begin with '{HEADER}': another version?")));
        }
        let weights = safetensors::SafeTensors::from_bytes(&archive.bytes(WEIGHTS)?)?.tensors()?;
        Self::parse(&text, weights)
    }

    /// A model of an archive's text, which consists of sections under lines `#: …`, and its weights.
    pub fn parse(text: &str, weights: StateDict) -> Result<Self> {
        let mut model = Self { unit: Unit::with_weights(weights), root: None, recorded: None };
        let mut section = (String::from("rlm"), String::new());
        let mut sections = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("#: ") {
                sections.push(std::mem::replace(&mut section, (name.trim().to_string(), String::new())));
            } else {
                section.1.push_str(line);
                section.1.push('\n');
            }
        }
        sections.push(section);
        for (name, text) in &sections {
            match name.split_once(' ').unwrap_or((name, "")) {
                ("rlm", _) if text.trim().is_empty() => {}
                ("rlm", _) => model.unit.define("", text)?,
                ("namespace", namespace) => model.unit.define(namespace, text)?,
                ("constants", _) => {
                    model.unit.constants = model.unit.literal(&parse::expression(text)?)?.items()?;
                }
                ("root", _) => match model.unit.literal(&parse::expression(text)?)? {
                    IValue::Object(root) => model.root = Some(root),
                    other => return Err(Error::value(format!("the root of a program is {}", other.kind()))),
                },
                _ => return Err(Error::unsupported(format!("section '{name}' of the program"))),
            }
        }
        if model.root.is_none() {
            model.entry("forward")?;
        }
        Ok(model)
    }

    /// The function that a call of a method runs.
    pub fn entry(&self, method: &str) -> Result<&Arc<Function>> {
        let found = match &self.root {
            Some(root) => self.unit.method(&root.class, method),
            None => self.unit.function(method),
        };
        found.ok_or_else(|| Error::value(format!("the program has no function '{method}'")))
    }

    /// Runs the model.
    pub fn forward(&self, inputs: &[IValue]) -> Result<IValue> {
        self.call("forward", inputs.to_vec(), Vec::new())
    }

    /// Runs a method with arguments by position and by name.
    pub fn call(&self, method: &str, args: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        match &self.recorded {
            Some(recorded) if keywords.is_empty() => {
                recorded.run(method, args, |args| self.interpret(method, args, Vec::new()))
            }
            _ => self.interpret(method, args, keywords),
        }
    }

    /// The model with its weights on another device or in another float dtype: `model.to(Device::Cuda(0))?`,
    /// `model.to(DType::BF16)?`. A frozen model stays frozen.
    ///
    /// ```
    /// # mod rushlight {
    /// #     pub use rushlight_core::DType;
    /// #     pub use rushlight_tensor::*;
    /// #     pub use rushlight_graph as graph;
    /// # }
    /// use rushlight::{DType, Tensor, graph::Model, state::StateDict};
    /// let weights = StateDict::from_iter([("w".to_string(), Tensor::ones([2, 2])?)]);
    /// let model = Model::from_text("def forward(x):\n  return torch.matmul(x, weight(\"w\"))\n", weights)?;
    /// assert_eq!(model.to(DType::BF16)?.state_dict()["w"].dtype(), DType::BF16);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn to(&self, target: impl Into<To>) -> Result<Self> {
        let To { dtype, device } = target.into();
        let (text, weights) = self.archive()?;
        let moved = |t: &Tensor| -> Result<Tensor> {
            let dtype = dtype.filter(|_| t.is_floating_point());
            t.detach().to(To { dtype, device })?.requires_grad_(t.requires_grad())
        };
        let weights = weights.iter().map(|(n, t)| Ok((n.clone(), moved(t)?))).collect::<Result<StateDict>>()?;
        let model = Self::parse(&text, weights)?;
        Ok(if self.recorded.is_some() { model.recording() } else { model })
    }

    /// How many graphs of a device a frozen model has recorded: one for each kind of inputs that came more than once,
    /// on engines that replay recorded steps.
    pub fn graphs(&self) -> usize {
        self.recorded.as_ref().map_or(0, Recorded::graphs)
    }

    /// Records calls from now on: a call of the same kind runs the engine's calls, fused, without the interpreter. A
    /// module with state of its own stays as it is.
    pub(crate) fn recording(mut self) -> Self {
        if self.root.is_none() {
            self.recorded = Some(Recorded::default());
        }
        self
    }

    fn interpret(&self, method: &str, args: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        let function = self.entry(method)?;
        match &self.root {
            Some(root) => Interpreter::new(&self.unit).method(root.clone(), method, args, keywords),
            None => {
                check_inputs(function, &args)?;
                self.unit.call(method, args, keywords)
            }
        }
    }

    /// The weights: parameters and buffers by their paths.
    pub fn state_dict(&self) -> StateDict {
        let mut out = StateDict::new();
        match &self.root {
            Some(root) => self.collect(root, "", &mut out, 0),
            None => out.extend(self.unit.weights.iter().map(|(n, t)| (n.clone(), t.clone()))),
        }
        out
    }

    fn collect(&self, object: &Object, prefix: &str, out: &mut StateDict, depth: usize) {
        if depth > 100 {
            return;
        }
        let class = self.unit.class(&object.class);
        let fields = object.fields();
        for (name, value) in &fields {
            let state = class.is_none_or(|c| c.parameters.contains(name) || c.buffers.contains(name));
            if let (IValue::Tensor(t), true) = (value, state) {
                out.insert(format!("{prefix}{name}"), t.clone());
            }
        }
        for (name, value) in &fields {
            if let IValue::Object(inner) = value {
                self.collect(inner, &format!("{prefix}{name}."), out, depth + 1);
            }
        }
    }

    /// Names of the parameters among the weights.
    pub fn parameter_names(&self) -> Vec<String> {
        match &self.root {
            None => self.unit.weights.iter().filter(|(_, t)| t.requires_grad()).map(|(n, _)| n.clone()).collect(),
            Some(_) => {
                let state = self.state_dict();
                let all = state.iter().filter(|(_, t)| t.requires_grad());
                all.map(|(n, _)| n.clone()).collect()
            }
        }
    }

    /// Copies tensors into the weights of the same names and shapes.
    pub fn load_state_dict(&self, state: &StateDict) -> Result<()> {
        let own = self.state_dict();
        for (name, tensor) in state {
            let target = own.get(name).ok_or_else(|| Error::value(format!("the model has no weight '{name}'")))?;
            if target.shape() != tensor.shape() {
                return Err(Error::shape(format!("weight '{name}': {:?}, not {:?}", target.shape(), tensor.shape())));
            }
            target.detach().copy_(tensor)?;
        }
        Ok(())
    }

    /// Sets `training` of the module and all its submodules.
    pub fn train(&self, mode: bool) {
        fn set(object: &Object, mode: bool, depth: usize) {
            if object.get("training").is_some() {
                object.set("training", IValue::Bool(mode));
            }
            for (_, value) in object.fields() {
                if let (IValue::Object(inner), true) = (value, depth < 100) {
                    set(&inner, mode, depth + 1);
                }
            }
        }
        if let Some(root) = &self.root {
            set(root, mode, 0);
        }
    }

    /// The program's text, as `.rlm` files have it.
    pub fn text(&self) -> Result<String> {
        self.archive().map(|(text, _)| text)
    }

    /// The program's text, and the weights that it names: what a `.rlm` file holds.
    pub fn archive(&self) -> Result<(String, StateDict)> {
        let mut text = format!("{HEADER}\n");
        let mut writer = Writer { weights: self.unit.weights.clone(), seen: HashMap::new() };
        for (namespace, source) in &self.unit.sources {
            if !namespace.is_empty() {
                text.push_str(&format!("#: namespace {namespace}\n"));
            }
            text.push_str(source);
            if !source.ends_with('\n') {
                text.push('\n');
            }
        }
        if !self.unit.constants.is_empty() {
            let constants = IValue::list(self.unit.constants.clone());
            text.push_str(&format!("#: constants\n{}\n", writer.literal(&constants, "constants", 0)?));
        }
        if let Some(root) = &self.root {
            text.push_str(&format!("#: root\n{}\n", writer.literal(&IValue::Object(root.clone()), "", 0)?));
        }
        Ok((text, writer.weights))
    }

    /// Writes a `.rlm` file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, &[])
    }

    /// Writes a `.rlm` file with further files in its folder `extra`, which [`extra_files`] reads.
    pub fn save_with(&self, path: impl AsRef<Path>, extra: &[(String, Vec<u8>)]) -> Result<()> {
        let (text, weights) = self.archive()?;
        let mut bytes = Vec::new();
        let plain: StateDict =
            weights.iter().map(|(n, t)| Ok((n.clone(), t.detach().contiguous()?))).collect::<Result<_>>()?;
        safetensors::write(&plain, &Default::default(), &mut bytes)?;
        let names: Vec<String> = extra.iter().map(|(name, _)| format!("{EXTRA}{name}")).collect();
        let mut all: Vec<(&str, &[u8])> = vec![(PROGRAM, text.as_bytes()), (WEIGHTS, &bytes)];
        all.extend(names.iter().zip(extra).map(|(name, (_, bytes))| (name.as_str(), bytes.as_slice())));
        records::write(path, &all)
    }
}

/// Files that whoever wrote an archive put beside its model, by their names; `None` for those it does not have.
pub fn extra_files(archive: &Records, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
    // Archives of PyTorch have one folder, under which everything is.
    let record = |name: &str| {
        let wanted = format!("{EXTRA}{name}");
        let mut all = archive.names();
        all.find(|n| *n == wanted || n.split_once('/').is_some_and(|(_, rest)| rest == wanted)).map(str::to_string)
    };
    names.iter().map(|name| record(name).map(|found| archive.bytes(&found)).transpose()).collect()
}

/// Writes values as expressions; tensors become weights.
struct Writer {
    weights: StateDict,
    /// Names of tensors by id.
    seen: HashMap<usize, String>,
}

/// Text as a literal.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Writer {
    fn literal(&mut self, value: &IValue, path: &str, depth: usize) -> Result<String> {
        if depth > 90 {
            return Err(Error::unsupported("modules nested this deeply in a .rlm file"));
        }
        let under = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        Ok(match value {
            IValue::Str(s) => quoted(s),
            IValue::Float(x) if x.is_infinite() => if *x > 0.0 { "inf" } else { "-inf" }.to_string(),
            IValue::Float(x) if x.is_nan() => "nan".to_string(),
            IValue::Tensor(t) => {
                let name = self.seen.get(&t.id()).cloned().unwrap_or_else(|| {
                    self.weights.insert(path.to_string(), t.clone());
                    path.to_string()
                });
                self.seen.insert(t.id(), name.clone());
                format!("weight({})", quoted(&name))
            }
            IValue::List(_) | IValue::Tuple(_) => {
                let items = value.items()?;
                let mut parts = Vec::new();
                for (i, item) in items.iter().enumerate() {
                    parts.push(self.literal(item, &under(&i.to_string()), depth + 1)?);
                }
                match (value, parts.len()) {
                    (IValue::List(_), _) => format!("[{}]", parts.join(", ")),
                    (_, 1) => format!("({},)", parts[0]),
                    _ => format!("({})", parts.join(", ")),
                }
            }
            IValue::Dict(entries) => {
                let entries = entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
                let mut parts = Vec::new();
                for (k, v) in &entries {
                    let key = self.literal(k, path, depth + 1)?;
                    parts.push(format!("{key}: {}", self.literal(v, &under(&k.to_string()), depth + 1)?));
                }
                format!("{{{}}}", parts.join(", "))
            }
            IValue::Object(object) => {
                let mut parts = Vec::new();
                for (name, v) in object.fields() {
                    parts.push(format!("{}: {}", quoted(&name), self.literal(&v, &under(&name), depth + 1)?));
                }
                format!("object({}, {{{}}})", quoted(&object.class), parts.join(", "))
            }
            IValue::Device(d) => format!("torch.device({})", quoted(&d.to_string())),
            IValue::Function(name) => return Err(Error::unsupported(format!("function '{name}' as a field"))),
            plain => plain.to_string(),
        })
    }
}

/// Checks tensors against types such as `float32[batch, 3]`; a name stands for the same size everywhere.
fn check_inputs(function: &Function, args: &[IValue]) -> Result<()> {
    let mut sizes: HashMap<&str, usize> = HashMap::new();
    for (param, value) in function.params.iter().zip(args) {
        let (Some(Type { name, args: Some(dims) }), IValue::Tensor(t)) = (&param.ty, value) else { continue };
        let Some(dtype) = DType::ALL.into_iter().find(|d| d.name() == name) else { continue };
        let mismatch = |what: String| Error::shape(format!("input '{}': {what}", param.name));
        if t.dtype() != dtype {
            return Err(mismatch(format!("the program takes {dtype}, got {}", t.dtype())));
        }
        if t.rank() != dims.len() {
            return Err(mismatch(format!("the program takes {} dimensions, got {:?}", dims.len(), t.shape())));
        }
        for (at, (dim, &size)) in dims.iter().zip(t.shape()).enumerate() {
            let wanted = match dim.name.parse::<usize>() {
                Ok(n) => n,
                Err(_) => *sizes.entry(dim.name.as_str()).or_insert(size),
            };
            if wanted != size {
                return Err(mismatch(format!("dimension {at} ('{}') must be {wanted}, got {size}", dim.name)));
            }
        }
    }
    Ok(())
}
