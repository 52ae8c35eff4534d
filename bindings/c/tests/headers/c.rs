//! The C header.

use std::fmt::Write;

/// The types, which C's compiler checks against the program and this crate's structs against the tests.
const TYPES: &str = r#"
/* A reference to a tensor; a program frees each reference it gets, with rl_tensor_free. Null is an undefined tensor. */
typedef struct rl_tensor rl_tensor;
/* An op; never freed. */
typedef struct rl_op rl_op;
/* A value of a file: None, a bool, a number, text, a tensor, a list, a tuple or a dict. */
typedef struct rl_object rl_object;
/* An optimizer. */
typedef struct rl_optimizer rl_optimizer;
/* An exported model. */
typedef struct rl_model rl_model;
/* A forward pass of rl_function_apply. */
typedef struct rl_frame rl_frame;
/* RL_OK, or the class of the error whose text rl_last_error returns. */
typedef int32_t rl_status;
/* The kind of a value. */
typedef int32_t rl_kind;

typedef union rl_data {
  rl_tensor *tensor;
  rl_tensor *const *tensors;
  int64_t integer;
  double number;
  const int64_t *integers;
  const double *numbers;
  const char *text;
} rl_data;

/* An argument or a result. */
typedef struct rl_value {
  rl_kind kind;
  rl_data data;
  size_t count;
} rl_value;

/* An entry of an index: a number or a truth value (start), a slice, a new axis, an ellipsis, a tensor or a mask. */
typedef struct rl_index {
  int32_t kind;
  int32_t given; /* for slices: bit 0, start is given; bit 1, stop is given */
  int64_t start;
  int64_t stop;
  int64_t step;
  const rl_tensor *tensor;
} rl_index;

/* An option of an optimizer's group. */
typedef struct rl_option {
  const char *name;
  rl_value value;
} rl_option;

/* Callbacks may be called from any thread. They return RL_OK, or call rl_set_error and return another status. */
typedef void (*rl_deleter)(void *context);
typedef rl_status (*rl_hook)(void *context, const rl_tensor *gradient, rl_tensor **replacement);
typedef rl_status (*rl_forward)(void *context, rl_frame *frame);
typedef rl_status (*rl_backward_function)(void *context, rl_tensor *const *saved, size_t saved_count, rl_tensor *const *gradients,
                                          size_t gradients_count, rl_tensor **found, size_t inputs_count);
typedef rl_status (*rl_closure)(void *context, rl_tensor **loss);
typedef rl_status (*rl_kernel)(void *context, rl_object *const *arguments, size_t count, rl_object **out);
"#;

/// A type in C.
fn c_type(rust: &str) -> String {
    let rust = rust.replace("crate :: tensor :: ", "").replace("crate::tensor::", "");
    let rust = rust.replace("crate :: values :: ", "").replace("crate::values::", "");
    if let Some(inner) = rust.strip_prefix("*mut ") {
        return pointer(&c_type(inner));
    }
    if let Some(inner) = rust.strip_prefix("*const ") {
        let inner = c_type(inner);
        return match inner.ends_with('*') {
            true => format!("{inner}const *"),
            false => pointer(&format!("const {inner}")),
        };
    }
    match rust.as_str() {
        "()" => "void",
        "usize" => "size_t",
        "i64" => "int64_t",
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "u8" => "uint8_t",
        "f64" => "double",
        "c_char" => "char",
        "c_void" => "void",
        other => other,
    }
    .to_string()
}

fn pointer(to: &str) -> String {
    if to.ends_with('*') { format!("{to}*") } else { format!("{to} *") }
}

fn declare(ty: &str, name: &str) -> String {
    if ty.ends_with('*') { format!("{ty}{name}") } else { format!("{ty} {name}") }
}

/// Wraps the words of a text.
fn wrap(text: &str, width: usize, indent: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.chars().count() > width {
            out.push('\n');
            out.push_str(indent);
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.chars().count();
    }
    out
}

pub fn header() -> String {
    let mut out = String::from(
        "/* Rushlight's C interface. Made from bindings/c/src by the test `headers`; do not edit.\n \
         *\n * Every function may be called from several threads at once. Functions that can fail return a status; rl_last_error\n \
         * returns the text of the calling thread's last error. No function lets a panic pass. */\n\
         #ifndef RUSHLIGHT_H\n#define RUSHLIGHT_H\n\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n",
    );
    let _ = writeln!(out, "#define RL_ABI_VERSION {}\n", rushlight_c::ABI_VERSION);
    for (name, code) in rushlight_c::CODES {
        let _ = writeln!(out, "#define {name} {code}");
    }
    out.push_str("\n/* Kinds of values. */\n");
    for (name, code, doc) in rushlight_c::KINDS {
        let _ = writeln!(out, "#define {name} {code} /* {} */", doc.trim().trim_end_matches('.').replace('`', ""));
    }
    out.push_str("\n/* Dtypes, with PyTorch's numbers. */\n");
    for (number, dtype, _) in rushlight_c::DTYPES {
        let _ = writeln!(out, "#define RL_DTYPE_{} {number}", dtype.name().to_uppercase());
    }
    out.push_str("\n/* Kinds of devices, with PyTorch's numbers. */\n");
    for (name, number) in [("CPU", 0), ("CUDA", 1), ("XPU", 12), ("META", 14)] {
        let _ = writeln!(out, "#define RL_{name} {number}");
    }
    out.push_str("\n/* Kinds of entries of an index. */\n");
    for (number, name) in ["INT", "SLICE", "NONE", "ELLIPSIS", "TENSOR", "BOOL"].iter().enumerate() {
        let _ = writeln!(out, "#define RL_INDEX_{name} {number}");
    }
    out.push_str("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    out.push_str(TYPES);
    for (section, functions) in rushlight_c::declarations() {
        let _ = writeln!(out, "\n/* {section}. */");
        for function in functions {
            let _ = writeln!(out, "\n/* {} */", wrap(function.doc, 112, " * "));
            let parameters: Vec<String> =
                function.parameters.iter().map(|(name, ty)| declare(&c_type(ty), name)).collect();
            let parameters = if parameters.is_empty() { "void".to_string() } else { parameters.join(", ") };
            let text = format!("{}({parameters});", declare(&c_type(function.returns), function.name));
            let _ = writeln!(out, "{}", wrap(&text, 116, "    "));
        }
    }
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    out
}
