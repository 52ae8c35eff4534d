//! One run of a function, recorded op by op.

use crate::IValue;
use rushlight_core::backend::{Call, View};
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::Tensor;
use rushlight_tensor::announce::{Listener, Op, Value};
use rushlight_tensor::state::StateDict;
use std::collections::{BTreeSet, HashMap};

/// What a tensor is in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An input, by number.
    Input(usize),
    /// A result, numbered in order.
    Result(usize),
    /// A parameter or buffer of the module.
    Weight(String),
    /// A tensor that the function made of no input.
    Constant(usize),
}

/// An argument.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Source(Source),
    /// An integer, which may depend on the inputs' sizes.
    Int(i64),
    /// Anything else, as text.
    Plain(String),
    List(Vec<Part>),
    Tuple(Vec<Part>),
}

/// An op of the program.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub name: String,
    pub args: Vec<Part>,
    pub keywords: Vec<(&'static str, Part)>,
    /// The tensor that the result is copied to.
    pub target: Option<Source>,
    /// Numbers of the results.
    pub results: Vec<usize>,
    /// Whether the op returned several tensors.
    pub is_several: bool,
    /// Shapes of the tensors among the arguments.
    pub shapes: Vec<(Source, Vec<usize>)>,
}

/// Whose memory it is.
#[derive(Clone)]
enum Owner {
    /// Of an input or a result.
    Program,
    Weight(String),
    Constant(usize),
}

/// Memory, dtype, sizes, strides, offset: tensors alike in all of them are one value.
type Place = (usize, DType, Vec<usize>, Vec<usize>, usize);

fn place(t: &Tensor) -> Place {
    (address(t), t.dtype(), t.shape().to_vec(), t.strides().to_vec(), t.layout().offset())
}

fn address(t: &Tensor) -> usize {
    t.storage().ptr() as usize
}

/// The ops of one run.
#[derive(Default)]
pub(super) struct Recorder {
    pub steps: Vec<Step>,
    pub constants: Vec<Tensor>,
    /// Constants that ops change in place: a run of the program begins with copies of them.
    pub changed: BTreeSet<usize>,
    /// Whether an op drew random numbers.
    pub is_random: bool,
    pub fault: Option<Error>,
    results: usize,
    pending: Option<Step>,
    ids: HashMap<usize, Source>,
    places: HashMap<Place, Source>,
    owners: HashMap<usize, Owner>,
    /// Everything that was numbered, so that no other tensor gets its address.
    alive: Vec<Tensor>,
}

impl Recorder {
    pub fn new(weights: &StateDict, inputs: &[Tensor]) -> Self {
        let mut this = Self::default();
        for (name, tensor) in weights {
            this.add(tensor, Source::Weight(name.clone()), Owner::Weight(name.clone()));
        }
        for (number, tensor) in inputs.iter().enumerate() {
            this.add(tensor, Source::Input(number), Owner::Program);
        }
        this
    }

    fn add(&mut self, tensor: &Tensor, source: Source, owner: Owner) {
        self.ids.insert(tensor.id(), source.clone());
        self.places.insert(place(tensor), source);
        if tensor.storage().bytes() > 0 {
            self.owners.entry(address(tensor)).or_insert(owner);
        }
        self.alive.push(tensor.clone());
    }

    /// What a tensor is; one that nothing is known of is a constant.
    pub fn source(&mut self, tensor: &Tensor) -> Result<Source> {
        if let Some(known) = self.ids.get(&tensor.id()).or_else(|| self.places.get(&place(tensor))) {
            return Ok(known.clone());
        }
        if let Some(Owner::Program) = self.owners.get(&address(tensor)) {
            return Err(Error::unsupported(format!(
                "export: a view of shape {:?} and strides {:?} was made by an op that programs have no name for, such as as_strided",
                tensor.shape(),
                tensor.strides()
            )));
        }
        let number = self.constants.len();
        self.constants.push(tensor.detach().copy()?);
        self.add(tensor, Source::Constant(number), Owner::Constant(number));
        Ok(Source::Constant(number))
    }

    fn part(&mut self, value: &Value, shapes: &mut Vec<(Source, Vec<usize>)>) -> Result<Part> {
        Ok(match value {
            Value::None => Part::Plain("None".into()),
            Value::Bool(b) => Part::Plain(if *b { "True" } else { "False" }.into()),
            Value::Int(i) => Part::Int(*i),
            Value::Float(x) => Part::Plain(float(*x)),
            Value::Text(text) => Part::Plain(crate::model::quoted(text)),
            Value::DType(dtype) => Part::Plain(format!("torch.{}", dtype.name())),
            Value::Device(device) => {
                Part::Plain(format!("torch.device({})", crate::model::quoted(&device.to_string())))
            }
            Value::Number(number, dtype) => {
                let number = match number {
                    Scalar::Bool(b) => if *b { "True" } else { "False" }.to_string(),
                    Scalar::Int(i) => i.to_string(),
                    Scalar::Float(x) => float(*x),
                    other => {
                        return Err(Error::unsupported(format!("export: a program cannot hold the number {other:?}")));
                    }
                };
                Part::Plain(format!("torch.tensor({number}, dtype=torch.{})", dtype.name()))
            }
            Value::List(items) => Part::List(items.iter().map(|item| self.part(item, shapes)).collect::<Result<_>>()?),
            Value::Tensor(tensor) => {
                let source = self.source(tensor)?;
                shapes.push((source.clone(), tensor.shape().to_vec()));
                Part::Source(source)
            }
        })
    }

    /// A value that the function returns.
    pub fn value(&mut self, value: &IValue) -> Result<Part> {
        let all =
            |this: &mut Self, items: Vec<IValue>| items.iter().map(|item| this.value(item)).collect::<Result<Vec<_>>>();
        Ok(match value {
            IValue::Tensor(tensor) => Part::Source(self.source(tensor)?),
            IValue::List(_) => Part::List(all(self, value.items()?)?),
            IValue::Tuple(_) => Part::Tuple(all(self, value.items()?)?),
            IValue::None | IValue::Bool(_) | IValue::Int(_) | IValue::Float(_) => Part::Plain(value.to_string()),
            other => return Err(Error::unsupported(format!("export: an output that is {}", other.kind()))),
        })
    }

    /// Notes that an op changes a tensor.
    fn change(&mut self, tensor: &Tensor) -> Result<()> {
        match self.owners.get(&address(tensor)) {
            Some(Owner::Weight(name)) => Err(changes(name)),
            Some(Owner::Constant(number)) => {
                self.changed.insert(*number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn blame(&mut self, message: String) {
        self.fault.get_or_insert(Error::unsupported(message));
    }
}

/// A float as programs write it.
pub(super) fn float(x: f64) -> String {
    match x {
        x if x.is_nan() => "nan".into(),
        x if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.into(),
        x => format!("{x:?}"),
    }
}

fn changes(name: &str) -> Error {
    Error::unsupported(format!(
        "export: the model changes '{name}' in place; switch it to evaluation with eval() first"
    ))
}

impl Listener for Recorder {
    fn begin(&mut self, op: Op) -> Result<()> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Op { name, args, keywords, target } = op;
        let first = match args.first() {
            Some(Value::Tensor(tensor)) if name.ends_with('_') => Some(tensor),
            _ => None,
        };
        let mut shapes = Vec::new();
        let parts = args.iter().map(|value| self.part(value, &mut shapes)).collect::<Result<Vec<_>>>()?;
        let named = |(key, value): &(&'static str, Value)| Ok((*key, self.part(value, &mut shapes)?));
        let keywords = keywords.iter().map(named).collect::<Result<Vec<_>>>()?;
        if let Some(changed) = first.or(target.as_ref()) {
            self.change(changed)?;
        }
        let target = target.as_ref().map(|target| self.source(target)).transpose()?;
        let statistics = match &*name {
            "nn.functional.batch_norm" | "nn.functional.instance_norm" => {
                matches!(args.get(5), Some(Value::Bool(true)))
            }
            _ => false,
        };
        if let (true, Some(Value::Tensor(running))) = (statistics, args.get(1)) {
            self.change(running)?;
        }
        self.is_random |= name == "nn.functional.dropout"
            || name.ends_with("attention") && !matches!(args.get(4), Some(Value::Float(0.0)));
        let recurrent = matches!(&*name, "torch.lstm" | "torch.gru" | "torch.rnn_tanh" | "torch.rnn_relu");
        let drops = matches!((args.get(5), args.get(6)), (Some(Value::Float(p)), Some(Value::Bool(true))) if *p > 0.0);
        self.is_random |= recurrent && drops;
        let name = name.into_owned();
        self.pending = Some(Step { name, args: parts, keywords, target, results: vec![], is_several: false, shapes });
        Ok(())
    }

    fn end(&mut self, results: &[Tensor]) -> Result<()> {
        let Some(mut step) = self.pending.take() else { return Ok(()) };
        let in_place = step.target.is_some() || step.name.ends_with('_');
        // An op that had nothing to do returns its argument.
        if let ([one], false) = (results, in_place)
            && self.ids.contains_key(&one.id())
        {
            return Ok(());
        }
        if !in_place {
            step.is_several = results.len() != 1 || matches!(&*step.name, "torch.split" | "torch.unbind");
            for result in results {
                step.results.push(self.results);
                self.add(result, Source::Result(self.results), Owner::Program);
                self.results += 1;
            }
        }
        self.steps.push(step);
        Ok(())
    }

    fn call(&mut self, call: &Call<View>) {
        let name = call.op_name();
        if let Call::Random(_) | Call::Permutation(_) | Call::Dropout(_) = call {
            return self
                .blame(format!("export: the model draws random numbers ({name}), which a program would repeat"));
        }
        let owner = |this: &Self, view: &View| {
            if view.storage().bytes() == 0 { None } else { this.owners.get(&(view.storage().ptr() as usize)).cloned() }
        };
        let reads = call.inputs().iter().any(|view| matches!(owner(self, view), Some(Owner::Program)));
        let written: Vec<Owner> = call.outputs().iter().filter_map(|view| owner(self, view)).collect();
        if reads || written.iter().any(|o| matches!(o, Owner::Program | Owner::Constant(_))) {
            self.blame(format!(
                "export: the model uses an op that programs have no name for (its call is {name}); write it with other ops, or export \
                 the model from Python with torch.export"
            ));
        } else if let Some(Owner::Weight(name)) = written.first() {
            self.fault.get_or_insert(changes(name));
        }
    }

    fn foreign(&mut self, what: &'static str) {
        self.blame(format!("export: the model uses {what}, which a program cannot hold"));
    }

    fn read(&mut self, tensor: &Tensor) -> Result<()> {
        match self.owners.get(&address(tensor)) {
            Some(Owner::Program) => Err(Error::unsupported(
                "export: the model reads values that depend on its inputs (item, to_vec); a program cannot depend on them",
            )),
            _ => Ok(()),
        }
    }
}
