//! C++ declarations of the ops: functions, methods, and the functional ops with Python's signatures.

use rushlight_c::{Home, Returned, Row, ops, parameters};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Ops that the headers declare by hand, because LibTorch's signature differs from Python's.
const BY_HAND: [&str; 17] = [
    "to",
    "unique",
    "unique_consecutive",
    "is_nonzero",
    "equal",
    "get_device",
    "_watched",
    "normal",
    "where",
    "var",
    "std",
    "norm",
    "var_mean",
    "std_mean",
    "lstm",
    "gru",
    "range",
];

/// Parameters that only Python has.
const DROPPED: [&str; 3] = ["as_tuple", "_stacklevel", "generator"];

/// Variants that another one covers in C++, or whose overload would be ambiguous.
const SHADOWED: [&str; 22] = [
    "split(Tensor tensor, int split_size, int dim=0)",
    "tensor_split(Tensor input, int[] indices, int dim=0)",
    "tensor_split(Tensor input, int sections, int dim=0)",
    "random_(Tensor self, int from, int? to, *, Generator? generator=None)",
    "vander(Tensor x, *, int? N=None)",
    "scatter(Tensor input, int dim, Tensor index, Number value, *, str? reduce=None)",
    "scatter_(Tensor self, int dim, Tensor index, Number value, *, str? reduce=None)",
    "sort(Tensor input, *, bool? stable, int dim=-1, bool descending=False)",
    "argsort(Tensor input, *, bool stable, int dim=-1, bool descending=False)",
    "pinv(Tensor A, float rcond, bool hermitian=False)",
    "matrix_rank(Tensor A, float tol, bool hermitian=False)",
    "narrow(Tensor input, int dim, Tensor start, int length)",
    "repeat_interleave(Tensor repeats, *, int? output_size=None)",
    "gradient(Tensor input, *, float[] spacing, int[1]? dim=None, int edge_order=1)",
    "gradient(Tensor input, *, Tensor[] spacing, int[1]? dim=None, int edge_order=1)",
    "rnn_tanh(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional)",
    "rnn_relu(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional)",
    "trapezoid(Tensor y, *, Number dx=1, int dim=-1)",
    "trapz(Tensor y, *, Number dx=1, int dim=-1)",
    "cumulative_trapezoid(Tensor y, *, Number dx=1, int dim=-1)",
    "atleast_1d(Tensor[] tensors)",
    "norm(Tensor A, str ord, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
];

/// Results of ops whose kind depends on their arguments in Python, and of those that return lists there, tuples here.
fn returned(name: &str, found: Returned) -> Option<&'static str> {
    Some(match found {
        Returned::Tensor => "Tensor",
        Returned::First => "First",
        Returned::Two => "std::tuple<Tensor, Tensor>",
        Returned::Three => "std::tuple<Tensor, Tensor, Tensor>",
        Returned::Number => "Scalar",
        Returned::Bool => "bool",
        Returned::Int => "int64_t",
        Returned::Float => "double",
        Returned::Nothing => "void",
        Returned::Tensors | Returned::Any => match name {
            _ if name.ends_with('_') => "First",
            "sort" | "topk" | "cummax" | "cummin" | "slogdet" | "triangular_solve" | "qr" | "geqrf" | "frexp"
            | "max" | "min" | "aminmax" | "median" | "nanmedian" | "mode" | "kthvalue" | "eigh" | "lu_factor"
            | "ldl_factor" | "rnn_tanh" | "rnn_relu" | "lstm_cell" => "std::tuple<Tensor, Tensor>",
            "svd" | "lu" | "ldl_factor_ex" | "lu_factor_ex" | "lu_unpack" => "std::tuple<Tensor, Tensor, Tensor>",
            "lstsq" => "std::tuple<Tensor, Tensor, Tensor, Tensor>",
            _ if found == Returned::Tensors || name == "gradient" => "std::vector<Tensor>",
            _ => "Tensor",
        },
    })
}

/// A parameter in C++.
#[derive(Clone)]
struct Parameter {
    ty: String,
    name: String,
    default: Option<String>,
    /// The expression of its value in the call.
    value: String,
    /// A declaration that the value needs.
    before: String,
}

/// The function that makes a value of a type: one without overloads, which would take the compiler's time in every op.
fn converter(ty: &str) -> &'static str {
    match ty {
        "const Tensor&" => "v_tensor",
        "const Scalar&" => "v_scalar",
        "int64_t" => "v_int",
        "double" => "v_float",
        "bool" => "v_bool",
        "IntArrayRef" => "v_ints",
        "OptionalIntArrayRef" => "v_optional_ints",
        "string_view" => "v_text",
        "const optional<Tensor>&" => "v_optional<Tensor>",
        "const optional<Scalar>&" => "v_optional<Scalar>",
        "optional<int64_t>" => "v_optional<int64_t>",
        "optional<double>" => "v_optional<double>",
        "optional<bool>" => "v_optional<bool>",
        "optional<ScalarType>" => "v_optional<ScalarType>",
        "optional<MemoryFormat>" => "v_optional<MemoryFormat>",
        _ => "v",
    }
}

/// The alternatives of a parameter in C++: overloads.
fn alternatives(ty: &str, name: &str, default: Option<&str>) -> Option<Vec<Parameter>> {
    // Names that C++ has words for.
    let name = match name {
        "self" => "self_",
        other => other,
    };
    let (bare, nullable) = match ty.strip_suffix('?') {
        Some(bare) => (bare, true),
        None => (ty, false),
    };
    let one = |ty: &str, default: Option<String>| Parameter {
        ty: ty.to_string(),
        name: name.to_string(),
        default,
        value: format!("{}({name})", converter(ty)),
        before: String::new(),
    };
    let none = default == Some("None");
    let text = |default: Option<&str>| {
        default.map(|d| match d {
            "None" => "{}".to_string(),
            "True" => "true".to_string(),
            "False" => "false".to_string(),
            "inf" => "std::numeric_limits<double>::infinity()".to_string(),
            quoted if quoted.starts_with('\'') => format!("\"{}\"", quoted.trim_matches('\'')),
            tuple if tuple.starts_with('(') => format!("{{{}}}", tuple.trim_matches(['(', ')'])),
            number => number.to_string(),
        })
    };
    let nullopt = || none.then(|| "nullopt".to_string()).or_else(|| text(default));
    let optional = |inner: &str| vec![one(&format!("const optional<{inner}>&"), nullopt())];
    Some(match (bare, nullable) {
        ("Tensor", false) => vec![one("const Tensor&", None)],
        ("Tensor", true) => vec![one("const optional<Tensor>&", none.then(|| "{}".to_string()))],
        ("Tensor[]", false) => {
            let mut list = one("TensorList", None);
            list.before = format!("Handles {name}_h({name}); ");
            list.value = format!("v({name}_h)");
            vec![list]
        }
        ("Tensor|Number", false) => vec![one("const Tensor&", None), one("const Scalar&", text(default))],
        ("Number", false) => vec![one("const Scalar&", text(default))],
        ("Number", true) => optional("Scalar"),
        ("int", false) => vec![one("int64_t", text(default))],
        ("int", true) => vec![one("optional<int64_t>", nullopt())],
        ("float", false) => vec![one("double", text(default))],
        ("float", true) => vec![one("optional<double>", nullopt())],
        ("bool", false) => vec![one("bool", text(default))],
        ("bool", true) => vec![one("optional<bool>", nullopt())],
        ("str", false) => vec![one("string_view", text(default))],
        ("str", true) => vec![one("optional<string_view>", nullopt())],
        ("float[]", _) => vec![one("ArrayRef<double>", text(default))],
        ("str|int[]", false) => vec![one("IntArrayRef", text(default)), one("const PaddingName&", None)],
        ("dtype", false) => vec![one("ScalarType", None)],
        ("dtype", true) => vec![one("optional<ScalarType>", nullopt())],
        ("device", true) => vec![one("optional<Device>", nullopt())],
        ("memory_format", _) => vec![one("optional<MemoryFormat>", nullopt())],
        (list, false) if list.starts_with("int") => vec![one("IntArrayRef", text(default))],
        (list, true) if list.starts_with("int") => {
            let default = if none { Some("nullopt".to_string()) } else { text(default) };
            vec![one("OptionalIntArrayRef", default)]
        }
        _ => return None,
    })
}

/// The overloads of a signature: lists of parameters.
fn overloads(signature: &'static str) -> Option<Vec<Vec<Parameter>>> {
    let factory = signature.contains("**factory");
    let mut all: Vec<Vec<Parameter>> = vec![Vec::new()];
    let found = parameters(signature);
    let made = if factory { found.len() - 5 } else { found.len() };
    for &(ty, name, default, _) in &found[..made] {
        let forms = match DROPPED.contains(&name) {
            true => vec![Parameter {
                ty: String::new(),
                name: String::new(),
                default: None,
                value: "v()".into(),
                before: String::new(),
            }],
            false => alternatives(ty, name, default)?,
        };
        all = all
            .iter()
            .flat_map(|before| forms.iter().map(move |form| [&before[..], std::slice::from_ref(form)].concat()))
            .collect();
    }
    if factory {
        let options = Parameter {
            ty: "const TensorOptions&".into(),
            name: "options".into(),
            default: Some("{}".into()),
            value: "opt_dtype(options), v(), opt_device(options), opt_pinned(options), opt_grad(options)".into(),
            before: String::new(),
        };
        all.iter_mut().for_each(|list| list.push(options.clone()));
    }
    // A default is of no use before a parameter without one.
    for list in &mut all {
        let mut required = false;
        for parameter in list.iter_mut().rev().filter(|p| !p.ty.is_empty()) {
            required |= parameter.default.is_none();
            if required {
                parameter.default = None;
            }
        }
    }
    Some(all)
}

/// What to write of a row.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Function,
    /// Of a method, inside the class.
    Declaration,
    /// Of a method, outside.
    Definition,
}

/// The text of a function with a body, or the declaration of a method.
fn function(op: &str, name: &str, result: &str, list: &[Parameter], form: Form, inplace: bool) -> String {
    let method = form != Form::Function;
    let mut shown: Vec<&Parameter> = list.iter().skip(method as usize).filter(|p| !p.ty.is_empty()).collect();
    // ATen has the memory format last.
    shown.sort_by_key(|p| p.ty == "optional<MemoryFormat>");
    let declared: Vec<String> = shown
        .iter()
        .map(|p| match &p.default {
            Some(default) if form != Form::Definition => format!("{} {} = {default}", p.ty, p.name),
            _ => format!("{} {}", p.ty, p.name),
        })
        .collect();
    let mut values: Vec<&str> = list.iter().map(|p| p.value.as_str()).collect();
    if method {
        values[0] = "v_tensor(*this)";
    }
    let before: String = list.iter().map(|p| p.before.as_str()).collect();
    // The value of options is several.
    let args = format!("(op_, a_, {})", values.iter().map(|v| v.matches("), ").count() + 1).sum::<usize>());
    let (ret, call) = match result {
        "First" if method => ("Tensor&", format!("one{args}; return const_cast<Tensor&>(*this)")),
        "First" => ("Tensor", format!("return one{args}")),
        "Tensor" if inplace => ("Tensor&", format!("one{args}; return const_cast<Tensor&>(*this)")),
        "Tensor" => ("Tensor", format!("return one{args}")),
        "std::tuple<Tensor, Tensor>" => (result, format!("return two{args}")),
        "std::tuple<Tensor, Tensor, Tensor>" => (result, format!("return three{args}")),
        "std::tuple<Tensor, Tensor, Tensor, Tensor>" => (result, format!("return four{args}")),
        "std::vector<Tensor>" => (result, format!("return many{args}")),
        "void" => (result, format!("number{args}")),
        "Scalar" => (result, format!("return number{args}")),
        other => (other, format!("return number{args}.to<{other}>()")),
    };
    let (head, class, tail) = match form {
        Form::Declaration => return format!("{ret} {name}({}) const;", declared.join(", ")),
        Form::Definition => ("inline ", "Tensor::", " const"),
        Form::Function => ("inline ", "", ""),
    };
    format!(
        "{head}{ret} {class}{name}({}){tail} {{ using namespace detail; static const Op op_(\"{op}\"); {before}rl_value a_[] = {{{}}}; {call}; }}",
        declared.join(", "),
        values.join(", ")
    )
}

/// Declarations of a row in a namespace. `seen` holds the overloads that exist already.
fn row(row: &Row, home: Home, form: Form, prefix: &str, seen: &mut BTreeSet<String>, out: &mut String) {
    if BY_HAND.contains(&row.name) && home != Home::Functional && home != Home::Linalg {
        return;
    }
    let (method, inplace) = (matches!(home, Home::Method | Home::Inplace), home == Home::Inplace);
    let name = if inplace { format!("{}_", row.name) } else { row.name.to_string() };
    for (signature, kind) in &row.variants {
        if SHADOWED.contains(signature) || method && !signature.contains("(Tensor ") {
            continue;
        }
        let Some(result) = returned(row.name, *kind) else { continue };
        let Some(lists) = overloads(signature) else { continue };
        let op = format!("{prefix}{name}{}", &signature[signature.find('(').unwrap_or(0)..]);
        for list in lists {
            let types: Vec<&str> = list.iter().skip(method as usize).map(|p| p.ty.as_str()).collect();
            // Numbers alone are numbers of C++.
            let tensors = list.iter().any(|p| p.ty.contains("Tensor") || p.ty == "int64_t" || p.ty == "IntArrayRef");
            if !tensors || list.iter().filter(|p| p.ty == "const Scalar&").count() == list.len() {
                continue;
            }
            if seen.insert(format!("{name}({})", types.join(","))) {
                let _ = writeln!(out, "{}", function(&op, &name, result, &list, form, inplace));
            }
        }
    }
}

const NOTE: &str = "// Made from the op table by the test `headers` of bindings/c; do not edit.\n";

/// `torch::name`, `torch::linalg::name`, `torch::special::name`, `torch::fft::name`.
pub fn functions() -> String {
    let mut out = NOTE.to_string();
    for (home, space, prefix) in [
        (Home::Torch, "", ""),
        (Home::Linalg, "linalg", "linalg."),
        (Home::Special, "special", "special."),
        (Home::Fft, "fft", "fft."),
    ] {
        let mut seen = BTreeSet::new();
        if !space.is_empty() {
            let _ = writeln!(out, "namespace {space} {{");
        }
        for op in ops().iter().filter(|op| op.homes.contains(&home)) {
            row(op, home, Form::Function, prefix, &mut seen, &mut out);
        }
        if !space.is_empty() {
            let _ = writeln!(out, "}}  // namespace {space}");
        }
    }
    out
}

/// `Tensor::name`: declarations inside the class.
pub fn declarations() -> String {
    methods(Form::Declaration)
}

/// `Tensor::name`: definitions.
pub fn definitions() -> String {
    methods(Form::Definition)
}

fn methods(form: Form) -> String {
    let (mut out, mut seen) = (NOTE.to_string(), BTreeSet::new());
    for home in [Home::Method, Home::Inplace] {
        for op in ops().iter().filter(|op| op.homes.contains(&home)) {
            row(op, home, form, "Tensor.", &mut seen, &mut out);
        }
    }
    out
}

/// `torch.nn.functional` with Python's signatures, under the C++ functional interface.
pub fn functional() -> String {
    let (mut out, mut seen) = (NOTE.to_string(), BTreeSet::new());
    for op in ops().iter().filter(|op| op.homes.contains(&Home::Functional)) {
        row(op, Home::Functional, Form::Function, "nn.functional.", &mut seen, &mut out);
    }
    out
}
