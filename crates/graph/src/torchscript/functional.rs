//! Python functions whose form in aten has another name or order.

use super::call::Argument;
use super::refused;
use crate::ivalue::IValue;
use rushlight_core::{Error, Result};

/// Function, op, and the op's arguments: parameters of the function by name, `name=parameter` by name, `+parameter` as
/// a float, other words as they are.
const ORDERS: &[(&str, &str, &str)] = &[
    ("linear", "linear", "input weight bias"),
    ("bilinear", "bilinear", "input1 input2 weight bias"),
    ("conv1d", "conv1d", "input weight bias stride padding dilation groups"),
    ("conv2d", "conv2d", "input weight bias stride padding dilation groups"),
    ("conv3d", "conv3d", "input weight bias stride padding dilation groups"),
    ("conv_transpose1d", "conv_transpose1d", "input weight bias stride padding output_padding groups dilation"),
    ("conv_transpose2d", "conv_transpose2d", "input weight bias stride padding output_padding groups dilation"),
    ("conv_transpose3d", "conv_transpose3d", "input weight bias stride padding output_padding groups dilation"),
    ("batch_norm", "batch_norm", "input weight bias running_mean running_var training momentum eps False"),
    ("instance_norm", "instance_norm", "input weight bias running_mean running_var use_input_stats momentum eps False"),
    ("layer_norm", "layer_norm", "input normalized_shape weight bias eps"),
    ("rms_norm", "rms_norm", "input normalized_shape weight eps"),
    ("group_norm", "group_norm", "input num_groups weight bias eps"),
    ("relu", "relu", "input"),
    ("relu6", "relu6", "input"),
    ("leaky_relu", "leaky_relu", "input negative_slope"),
    ("elu", "elu", "input alpha"),
    ("selu", "selu", "input"),
    ("celu", "celu", "input alpha"),
    ("gelu", "gelu", "input approximate=approximate"),
    ("silu", "silu", "input"),
    ("mish", "mish", "input"),
    ("hardswish", "hardswish", "input"),
    ("hardsigmoid", "hardsigmoid", "input"),
    ("hardtanh", "hardtanh", "input min_val max_val"),
    ("hardshrink", "hardshrink", "input lambd"),
    ("softshrink", "softshrink", "input lambd"),
    ("softplus", "softplus", "input beta threshold"),
    ("threshold", "threshold", "input threshold value"),
    ("logsigmoid", "log_sigmoid", "input"),
    ("sigmoid", "sigmoid", "input"),
    ("tanh", "tanh", "input"),
    ("prelu", "prelu", "input weight"),
    ("glu", "glu", "input dim"),
    ("softmax", "softmax", "input dim dtype"),
    ("log_softmax", "log_softmax", "input dim dtype"),
    ("dropout", "dropout", "input p training"),
    ("dropout1d", "feature_dropout", "input p training"),
    ("dropout2d", "feature_dropout", "input p training"),
    ("dropout3d", "feature_dropout", "input p training"),
    ("alpha_dropout", "alpha_dropout", "input p training"),
    ("feature_alpha_dropout", "feature_alpha_dropout", "input p training"),
    ("max_pool1d", "max_pool1d", "input kernel_size stride padding dilation ceil_mode"),
    ("max_pool2d", "max_pool2d", "input kernel_size stride padding dilation ceil_mode"),
    ("max_pool3d", "max_pool3d", "input kernel_size stride padding dilation ceil_mode"),
    ("avg_pool1d", "avg_pool1d", "input kernel_size stride padding ceil_mode count_include_pad"),
    ("avg_pool2d", "avg_pool2d", "input kernel_size stride padding ceil_mode count_include_pad divisor_override"),
    ("avg_pool3d", "avg_pool3d", "input kernel_size stride padding ceil_mode count_include_pad divisor_override"),
    ("adaptive_avg_pool1d", "adaptive_avg_pool1d", "input output_size"),
    ("adaptive_avg_pool2d", "adaptive_avg_pool2d", "input output_size"),
    ("adaptive_avg_pool3d", "adaptive_avg_pool3d", "input output_size"),
    ("pad", "pad", "input pad mode +value"),
    ("pixel_shuffle", "pixel_shuffle", "input upscale_factor"),
    ("pixel_unshuffle", "pixel_unshuffle", "input downscale_factor"),
    ("channel_shuffle", "channel_shuffle", "input groups"),
    ("unfold", "im2col", "input kernel_size dilation padding stride"),
    ("fold", "col2im", "input output_size kernel_size dilation padding stride"),
    (
        "scaled_dot_product_attention",
        "scaled_dot_product_attention",
        "query key value attn_mask dropout_p is_causal scale=scale enable_gqa=enable_gqa",
    ),
    ("cosine_similarity", "cosine_similarity", "x1 x2 dim eps"),
    ("pairwise_distance", "pairwise_distance", "x1 x2 p eps keepdim"),
    ("one_hot", "one_hot", "tensor num_classes"),
    ("mse_loss", "mse_loss", "input target reduction"),
    ("l1_loss", "l1_loss", "input target reduction"),
    ("smooth_l1_loss", "smooth_l1_loss", "input target reduction beta"),
    ("huber_loss", "huber_loss", "input target reduction delta"),
    ("cross_entropy", "cross_entropy_loss", "input target weight reduction ignore_index label_smoothing"),
    ("nll_loss", "nll_loss_nd", "input target weight reduction ignore_index"),
    ("binary_cross_entropy", "binary_cross_entropy", "input target weight reduction"),
    (
        "binary_cross_entropy_with_logits",
        "binary_cross_entropy_with_logits",
        "input target weight pos_weight reduction",
    ),
    ("kl_div", "kl_div", "input target reduction log_target=log_target"),
];

/// Methods and functions of `torch` with another order in aten.
const OTHERS: &[(&str, &str, &str)] = &[
    ("contiguous", "contiguous", "self"),
    ("nonzero", "nonzero", "input"),
    ("sort", "sort", "stable=stable input dim descending"),
    ("argsort", "argsort", "stable=stable input dim descending"),
];

/// Parameters that change how an op computes but not what.
const IGNORED: [&str; 6] = ["_stacklevel", "inplace", "sparse", "scale_grad_by_freq", "norm_type", "memory_format"];

struct Given<'a>(&'a [Argument]);

impl Given<'_> {
    fn find(&self, name: &str) -> Option<&Argument> {
        self.0.iter().find(|a| a.name == name)
    }

    fn text(&self, name: &str) -> Result<&str> {
        let found = self.find(name).ok_or_else(|| Error::value(format!("the op has no argument '{name}'")))?;
        Ok(&found.piece.text)
    }

    fn value(&self, name: &str) -> Option<&IValue> {
        self.find(name)?.piece.value.as_ref()
    }

    /// A choice among words as its number.
    fn word(&self, name: &str, words: &[&str]) -> Result<String> {
        let at = match self.value(name) {
            Some(IValue::Str(s)) => words.iter().position(|w| **w == **s),
            _ => None,
        };
        at.map(|at| at.to_string()).ok_or_else(|| refused(&format!("another value of '{name}'")))
    }

    fn is_true(&self, name: &str) -> bool {
        matches!(self.value(name), Some(IValue::Bool(true)))
    }

    /// Whether the program gives an argument that is neither `None` nor `False`.
    fn matters(&self, argument: &Argument) -> bool {
        argument.is_given && !matches!(argument.piece.value, Some(IValue::None | IValue::Bool(false)))
    }

    fn ordered(&self, op: &str, order: &str) -> Result<String> {
        let mut used = Vec::new();
        let mut parts = Vec::new();
        for word in order.split(' ') {
            let (keyword, rest) = word.split_once('=').map_or(("", word), |(k, rest)| (k, rest));
            let name = rest.trim_start_matches('+');
            used.push(name);
            let text = match name {
                "reduction" => self.word(name, &["none", "mean", "sum"])?,
                _ => match self.find(name) {
                    None => name.to_string(),
                    // The size of the window.
                    Some(argument) if name == "stride" && argument.piece.is_none() => "[]".to_string(),
                    Some(argument) if rest.starts_with('+') && !argument.piece.is_none() => match &argument.piece.value
                    {
                        Some(value) => super::code::float(value.to_float()?),
                        None => format!("float({})", argument.piece.text),
                    },
                    Some(argument) => argument.piece.text.clone(),
                },
            };
            parts.push(if keyword.is_empty() { text } else { format!("{keyword}={text}") });
        }
        let other = |a: &&Argument| self.matters(a) && !used.contains(&a.name) && !IGNORED.contains(&a.name);
        if let Some(argument) = self.0.iter().find(other) {
            return Err(refused(&format!("the argument '{}' of {op}", argument.name)));
        }
        Ok(format!("torch.{op}({})", parts.join(", ")))
    }
}

/// The call of an op whose form differs; `None` if the row's own order is aten's.
pub(super) fn write(home: &str, name: &str, arguments: &[Argument]) -> Result<Option<String>> {
    let given = Given(arguments);
    if home != "functional" {
        return match name {
            "sort" | "argsort" if !given.is_true("stable") => given.ordered(name, "input dim descending").map(Some),
            "std" | "var" if given.find("unbiased").is_some() => {
                let correction = i64::from(given.is_true("unbiased"));
                let (x, dim, keep) = (given.text("input")?, given.text("dim")?, given.text("keepdim")?);
                Ok(Some(format!("torch.{name}({x}, {dim}, correction={correction}, keepdim={keep})")))
            }
            "where" if arguments.first().is_some_and(|a| a.name == "self") => {
                let (x, c, other) = (given.text("self")?, given.text("condition")?, given.text("other")?);
                Ok(Some(format!("torch.where({c}, {x}, {other})")))
            }
            "norm" if given.find("dim").is_some_and(|a| a.piece.is_none()) => {
                given.ordered("norm", "input p").map(Some)
            }
            "contiguous" if given.find("memory_format").is_some_and(|a| given.matters(a)) => {
                given.ordered("contiguous", "self memory_format=memory_format").map(Some)
            }
            _ => match OTHERS.iter().find(|(function, _, _)| *function == name) {
                Some((_, op, order)) => given.ordered(op, order).map(Some),
                None => Ok(None),
            },
        };
    }
    let (plain, in_place) = match name.strip_suffix('_') {
        Some(plain) => (plain, true),
        None => (name, given.is_true("inplace")),
    };
    if given.is_true("return_indices") {
        return Err(refused(&format!("{name} with indices")));
    }
    if let Some((_, op, order)) = ORDERS.iter().find(|(function, _, _)| *function == plain) {
        let op = if in_place { format!("{op}_") } else { op.to_string() };
        return given.ordered(&op, order).map(Some);
    }
    special(&given, plain)
}

fn special(given: &Given, name: &str) -> Result<Option<String>> {
    let x = given.0.first().map_or("", |a| &a.piece.text);
    Ok(Some(match name {
        "embedding" => {
            if given.find("max_norm").is_some_and(|a| given.matters(a)) {
                return Err(refused("embedding with max_norm"));
            }
            let padding = match given.find("padding_idx") {
                Some(a) if !a.piece.is_none() => a.piece.text.clone(),
                _ => "-1".to_string(),
            };
            format!("torch.embedding({}, {x}, {padding}, False, False)", given.text("weight")?)
        }
        "softsign" => format!("torch.div({x}, torch.add(torch.abs({x}), 1))"),
        "tanhshrink" => format!("torch.sub({x}, torch.tanh({x}))"),
        "softmin" => format!("torch.softmax(torch.neg({x}), {}, {})", given.text("dim")?, given.text("dtype")?),
        "normalize" => {
            let (p, dim, eps) = (given.text("p")?, given.text("dim")?, given.text("eps")?);
            format!("torch.div({x}, torch.expand_as(torch.clamp_min(torch.norm({x}, {p}, [{dim}], True), {eps}), {x}))")
        }
        "_grid_sample" => {
            let mode = given.word("mode", &["bilinear", "nearest", "bicubic"])?;
            let fill = given.word("padding_mode", &["zeros", "border", "reflection"])?;
            format!(
                "torch.grid_sampler({x}, {}, {mode}, {fill}, {})",
                given.text("grid")?,
                given.text("align_corners")?
            )
        }
        "interpolate" | "upsample" => interpolate(given, x)?,
        _ => return Ok(None),
    }))
}

/// One op for each number of dimensions.
fn interpolate(given: &Given, x: &str) -> Result<String> {
    if given.is_true("antialias") {
        return Err(refused("interpolate with antialias"));
    }
    let mode = match given.value("mode") {
        Some(IValue::Str(mode)) => mode.to_string(),
        _ => String::new(),
    };
    // A number counts for every dimension.
    let list = |name: &str, count: usize| -> String {
        match given.find(name) {
            Some(a) if !a.piece.is_none() => {
                let one = a.piece.text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).filter(|t| !t.contains(','));
                match one {
                    Some(one) => format!("[{}]", vec![one; count].join(", ")),
                    None => a.piece.text.clone(),
                }
            }
            _ => "None".to_string(),
        }
    };
    let align = if given.is_true("align_corners") { "True, " } else { "False, " };
    let call = |op: &str, count: usize, align: &str| {
        format!("torch.{op}({x}, {}, {align}{})", list("size", count), list("scale_factor", count))
    };
    Ok(match mode.as_str() {
        "bilinear" => call("upsample_bilinear2d", 2, align),
        "bicubic" => call("upsample_bicubic2d", 2, align),
        "linear" => call("upsample_linear1d", 1, align),
        "trilinear" => call("upsample_trilinear3d", 3, align),
        "nearest" => {
            let [one, two, three] = [1, 2, 3].map(|n| call(&format!("upsample_nearest{n}d"), n, ""));
            format!("({two} if torch.dim({x}) == 4 else ({one} if torch.dim({x}) == 3 else {three}))")
        }
        other => return Err(refused(&format!("interpolate with mode '{other}'"))),
    })
}
