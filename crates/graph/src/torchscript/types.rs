//! Types of expressions, as far as the code of an archive needs them.

use crate::ivalue::IValue;
use crate::script::ast::Type;
use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ty {
    Tensor,
    Int,
    Float,
    Bool,
    Str,
    None,
    Device,
    List(Box<Ty>),
    Tuple(Vec<Ty>),
    Dict,
}

impl Ty {
    pub(super) fn list(inner: Ty) -> Ty {
        Ty::List(Box::new(inner))
    }

    pub(super) fn tensors(count: usize) -> Ty {
        Ty::Tuple(vec![Ty::Tensor; count])
    }

    /// The type of a parameter as written: `float32[batch, 3]` is a tensor.
    pub(super) fn written(ty: Option<&Type>) -> Ty {
        let Some(ty) = ty else { return Ty::Tensor };
        let inner = |at: usize| Ty::written(ty.args.as_ref().and_then(|a| a.get(at)));
        match ty.name.as_str() {
            "int" | "number" | "Scalar" => Ty::Int,
            "float" => Ty::Float,
            "bool" => Ty::Bool,
            "str" => Ty::Str,
            "List" => Ty::list(inner(0)),
            "Tuple" => Ty::Tuple((0..ty.args.as_ref().map_or(0, Vec::len)).map(inner).collect()),
            "Dict" => Ty::Dict,
            "Optional" => inner(0),
            _ => Ty::Tensor,
        }
    }

    pub(super) fn of(value: &IValue) -> Ty {
        match value {
            IValue::None => Ty::None,
            IValue::Bool(_) => Ty::Bool,
            IValue::Int(_) | IValue::DType(_) => Ty::Int,
            IValue::Float(_) => Ty::Float,
            IValue::Str(_) => Ty::Str,
            IValue::Device(_) => Ty::Device,
            _ => Ty::Tensor,
        }
    }

    /// Some value of the type, to choose among the forms of an op.
    pub(super) fn example(&self) -> Result<IValue> {
        Ok(match self {
            // With a dimension: a tensor without any may stand for a number.
            Ty::Tensor => IValue::Tensor(Tensor::zeros([1])?),
            Ty::Int => IValue::Int(1),
            Ty::Float => IValue::Float(1.0),
            Ty::Bool => IValue::Bool(true),
            Ty::Str => "".into(),
            Ty::None => IValue::None,
            Ty::Device => IValue::Device(rushlight_core::Device::Cpu),
            Ty::List(inner) => IValue::list([inner.example()?]),
            Ty::Tuple(items) => IValue::tuple(items.iter().map(Ty::example).collect::<Result<Vec<_>>>()?),
            Ty::Dict => IValue::dict([]),
        })
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Ty::Int | Ty::Float | Ty::Bool)
    }

    /// The type of elements.
    pub(super) fn element(&self, at: Option<usize>) -> Ty {
        match (self, at) {
            (Ty::List(inner), _) => (**inner).clone(),
            (Ty::Tuple(items), Some(at)) => items.get(at).cloned().unwrap_or(Ty::Tensor),
            _ => Ty::Tensor,
        }
    }
}

/// A type as code has it.
pub(super) fn shown(ty: &Type) -> String {
    let plain = ["int", "float", "bool", "str", "List", "Tuple", "Dict", "Optional", "NoneType", "Device", "number"];
    match (&ty.args, plain.contains(&ty.name.as_str())) {
        (Some(args), true) => format!("{}[{}]", ty.name, args.iter().map(shown).collect::<Vec<_>>().join(", ")),
        (None, true) => ty.name.clone(),
        _ => "Tensor".to_string(),
    }
}

/// The type of an op's result, by its bare name and its arguments' types.
pub(super) fn result(name: &str, args: &[Ty], by_dim: bool) -> Ty {
    // Names of ops on tensors, with numbers.
    if !args.is_empty() && args.iter().all(Ty::is_number) {
        let is_float = args.contains(&Ty::Float);
        match name {
            "add" | "sub" | "mul" | "floordiv" | "floor_divide" | "remainder" | "fmod" | "neg" | "abs" | "pow" => {
                return if is_float { Ty::Float } else { Ty::Int };
            }
            "floor" | "ceil" | "round" => return Ty::Int,
            "div" | "sqrt" | "exp" | "log" => return Ty::Float,
            "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "__and__" | "__or__" | "__not__" => return Ty::Bool,
            _ => {}
        }
    }
    match name {
        "Int" | "IntImplicit" | "ScalarImplicit" | "Number" | "item" => Ty::Int,
        "Float" | "FloatImplicit" => Ty::Float,
        "Bool" | "__is__" | "__isnot__" | "__not__" | "__contains__" => Ty::Bool,
        "__getitem__" => args.first().map_or(Ty::Tensor, |list| list.element(None)),
        "size" | "sym_size" | "sizes" if args.len() > 1 => Ty::Int,
        "size" | "sym_size" | "sizes" | "shape" | "stride" => Ty::list(Ty::Int),
        "numel" | "dim" | "len" | "get_device" | "element_size" => Ty::Int,
        "is_floating_point" | "is_complex" | "is_contiguous" | "is_nonzero" | "equal" | "allclose" => Ty::Bool,
        "chunk" | "split" | "split_with_sizes" | "unbind" | "tensor_split" | "hsplit" | "vsplit" | "dsplit"
        | "broadcast_tensors" | "meshgrid" | "unsafe_chunk" | "unsafe_split" => Ty::list(Ty::Tensor),
        "max" | "min" | "median" | "nanmedian" if by_dim => Ty::tensors(2),
        "topk" | "sort" | "kthvalue" | "mode" | "cummax" | "cummin" | "aminmax" | "std_mean" | "var_mean" | "frexp"
        | "gru" | "rnn_tanh" | "rnn_relu" | "lstm_cell" | "linalg_qr" | "linalg_eigh" | "linalg_slogdet"
        | "slogdet" | "linalg_lu_factor" | "native_dropout" => Ty::tensors(2),
        "lstm" | "linalg_svd" | "svd" | "linalg_lu" | "unique_consecutive" => Ty::tensors(3),
        _ => Ty::Tensor,
    }
}
