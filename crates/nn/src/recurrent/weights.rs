//! The weights of one cell, and one step of it.

use crate::{Field, Member, MemberMut, Memo, Parameter, init};
use rushlight_core::{Error, Result};
use rushlight_tensor::{Options, Tensor};

/// The cell: how the new state follows from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An activation of both, each through a linear layer.
    Plain(RNNNonlinearity),
    /// A long short-term memory.
    Lstm,
    /// A gated recurrent unit.
    Gru,
}

/// The activation of a plain recurrent layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RNNNonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

impl Kind {
    /// How many vectors of the hidden size a step computes at once.
    pub(super) fn gates(self) -> usize {
        match self {
            Kind::Plain(_) => 1,
            Kind::Lstm => 4,
            Kind::Gru => 3,
        }
    }
}

/// The sizes of one cell; `proj_size` is 0 where the hidden state is not projected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) input: usize,
    pub(super) hidden: usize,
    pub(super) proj: usize,
}

impl Sizes {
    /// The features of the hidden state.
    pub(super) fn state(&self) -> usize {
        if self.proj > 0 { self.proj } else { self.hidden }
    }
}

/// The weights of one cell: of a cell module, or of one layer and direction.
pub struct CellWeights {
    /// `[gates * hidden_size, input_size]`.
    pub weight_ih: Parameter,
    /// `[gates * hidden_size, hidden_size]`.
    pub weight_hh: Parameter,
    /// `[gates * hidden_size]`, of the input and of the hidden state.
    pub biases: Option<[Parameter; 2]>,
    /// `[proj_size, hidden_size]`.
    pub weight_hr: Option<Parameter>,
}

impl CellWeights {
    /// Uniform within `1 / sqrt(hidden_size)`, as PyTorch's.
    pub(super) fn new(name: &str, kind: Kind, sizes: Sizes, bias: bool, options: Options) -> Result<Self> {
        let rows = kind.gates().checked_mul(sizes.hidden).filter(|&n| n > 0);
        let rows = rows.ok_or_else(|| {
            Error::value(format!("{name}: hidden_size must be greater than zero and addressable, got {}", sizes.hidden))
        })?;
        let bound = 1.0 / (sizes.hidden as f64).sqrt();
        let made = |shape: &[usize]| -> Result<Parameter> {
            let p = Parameter::new(&Tensor::empty_with(shape, options)?)?;
            init::uniform_(&p, -bound, bound)?;
            Ok(p)
        };
        Ok(Self {
            weight_ih: made(&[rows, sizes.input])?,
            weight_hh: made(&[rows, sizes.state()])?,
            biases: if bias { Some([made(&[rows])?, made(&[rows])?]) } else { None },
            weight_hr: if sizes.proj > 0 { Some(made(&[sizes.proj, sizes.hidden])?) } else { None },
        })
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &Parameter)> {
        let biases = self.biases.as_ref().map(|[ih, hh]| [("bias_ih", ih), ("bias_hh", hh)]);
        [("weight_ih", &self.weight_ih), ("weight_hh", &self.weight_hh)]
            .into_iter()
            .chain(biases.into_iter().flatten())
            .chain(self.weight_hr.as_ref().map(|w| ("weight_hr", w)))
    }

    fn named_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Parameter)> {
        let biases = self.biases.as_mut().map(|[ih, hh]| [("bias_ih", ih), ("bias_hh", hh)]);
        [("weight_ih", &mut self.weight_ih), ("weight_hh", &mut self.weight_hh)]
            .into_iter()
            .chain(biases.into_iter().flatten())
            .chain(self.weight_hr.as_mut().map(|w| ("weight_hr", w)))
    }

    /// The weights, without packing.
    pub(super) fn borrowed(&self) -> RecurrentWeights<'_> {
        RecurrentWeights {
            weight_ih: &self.weight_ih,
            weight_hh: &self.weight_hh,
            biases: self.biases.as_ref().map(|[ih, hh]| [ih.tensor(), hh.tensor()]),
            weight_hr: self.weight_hr.as_deref(),
        }
    }
}

/// The weights of one cell: of a cell module, or of one layer and direction.
#[derive(Clone, Copy)]
pub struct RecurrentWeights<'a> {
    /// `[gates * hidden_size, input_size]`.
    pub weight_ih: &'a Tensor,
    /// `[gates * hidden_size, hidden_size]`, or `[gates * hidden_size, proj_size]`.
    pub weight_hh: &'a Tensor,
    /// `[gates * hidden_size]`, of the input and of the hidden state.
    pub biases: Option<[&'a Tensor; 2]>,
    /// `[proj_size, hidden_size]`.
    pub weight_hr: Option<&'a Tensor>,
}

impl<'a> RecurrentWeights<'a> {
    /// The gates' share from the input, of `[rows, input_size]`: one product for all steps.
    pub(super) fn project_input(&self, kind: Kind, input: &Tensor) -> Result<Tensor> {
        match (self.biases, kind) {
            (None, _) => input.linear(self.weight_ih, None),
            // The hidden state's bias of a GRU is under the reset gate.
            (Some([ih, _]), Kind::Gru) => input.linear(self.weight_ih, Some(ih)),
            (Some([ih, hh]), _) => input.linear(self.weight_ih, Some(&ih.add(hh)?)),
        }
    }

    /// The bias of the hidden state; `None` if it is added together with the input's.
    pub(super) fn state_bias(&self, kind: Kind) -> Option<&'a Tensor> {
        self.biases.filter(|_| kind == Kind::Gru).map(|[_, hh]| hh)
    }

    /// One step: the new state from the gates' share from the input and the old state.
    pub(super) fn step(&self, kind: Kind, from_input: &Tensor, state: &State) -> Result<State> {
        step(kind, from_input, state, self.weight_hh, self.state_bias(kind), self.weight_hr)
    }
}

/// One step of a cell with these weights.
pub(super) fn step(
    kind: Kind,
    from_input: &Tensor,
    state: &State,
    weight_hh: &Tensor,
    bias_hh: Option<&Tensor>,
    weight_hr: Option<&Tensor>,
) -> Result<State> {
    let hidden = from_input.shape()[1] / kind.gates();
    if kind == Kind::Gru {
        let from_state = state.h.linear(weight_hh, bias_hh)?;
        let (x, s) = (
            from_input.split_with_sizes(&[2 * hidden, hidden], 1)?,
            from_state.split_with_sizes(&[2 * hidden, hidden], 1)?,
        );
        let gates = x[0].add(&s[0])?.sigmoid()?.split(hidden, 1)?;
        let (reset, update) = (&gates[0], &gates[1]);
        let new = x[1].addcmul(reset, &s[1], 1.0)?.tanh()?;
        return Ok(State { h: new.lerp(&state.h, update)?, c: None });
    }
    let gates = from_input.addmm(&state.h, &weight_hh.t()?, 1.0, 1.0)?;
    match (kind, &state.c) {
        (Kind::Lstm, Some(c)) => {
            let parts = gates.split_with_sizes(&[2 * hidden, hidden, hidden], 1)?;
            let input_forget = parts[0].sigmoid()?.split(hidden, 1)?;
            let (candidate, output) = (parts[1].tanh()?, parts[2].sigmoid()?);
            let c = input_forget[1].mul(c)?.addcmul(&input_forget[0], &candidate, 1.0)?;
            let h = output.mul(&c.tanh()?)?;
            let h = weight_hr.map_or(Ok(h.clone()), |w| h.linear(w, None))?;
            Ok(State { h, c: Some(c) })
        }
        (Kind::Plain(RNNNonlinearity::Relu), _) => Ok(State { h: gates.relu()?, c: None }),
        _ => Ok(State { h: gates.tanh()?, c: None }),
    }
}

/// Parameters under PyTorch's names, `suffix` behind each.
impl CellWeights {
    pub(super) fn visit_suffixed<'a>(&'a self, suffix: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        self.named().for_each(|(name, p)| p.visit(&format!("{name}{suffix}"), visit));
    }

    pub(super) fn visit_suffixed_mut<'a>(&'a mut self, suffix: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        self.named_mut().for_each(|(name, p)| p.visit_mut(&format!("{name}{suffix}"), visit));
    }
}

impl Field for CellWeights {
    fn visit<'a>(&'a self, _: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        self.visit_suffixed("", visit);
    }

    fn visit_mut<'a>(&'a mut self, _: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        self.visit_suffixed_mut("", visit);
    }

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        Ok(Self {
            weight_ih: self.weight_ih.deepcopy_field(memo)?,
            weight_hh: self.weight_hh.deepcopy_field(memo)?,
            biases: self.biases.deepcopy_field(memo)?,
            weight_hr: self.weight_hr.deepcopy_field(memo)?,
        })
    }
}

/// The state of a batch of sequences, `[batch, features]`; `c` is an LSTM's cell state.
#[derive(Clone)]
pub(super) struct State {
    pub(super) h: Tensor,
    pub(super) c: Option<Tensor>,
}

impl State {
    /// The same done to both parts.
    pub(super) fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<State> {
        Ok(State { h: f(&self.h)?, c: self.c.as_ref().map(f).transpose()? })
    }

    /// The same done to both parts of several states.
    pub(super) fn join(states: &[State], f: impl Fn(&[&Tensor]) -> Result<Tensor>) -> Result<State> {
        let h: Vec<&Tensor> = states.iter().map(|s| &s.h).collect();
        let c: Vec<&Tensor> = states.iter().filter_map(|s| s.c.as_ref()).collect();
        Ok(State { h: f(&h)?, c: if c.is_empty() { None } else { Some(f(&c)?) } })
    }
}
