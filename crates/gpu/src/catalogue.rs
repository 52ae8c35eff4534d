//! Every kernel in the forms in use. A vendor's crate compiles them in its tests for the architectures it
//! knows.

use crate::comm::{collectives, shared_memory};
use crate::device::capture;
use crate::families::attention::{self, flash, flash_hopper, flash_mfma};
use crate::families::conv::{self, depthwise as conv_depthwise, few as conv_few};
use crate::families::pointwise::{Form, Formula, Lanes};
use crate::families::{
    batch_norm, complex, copy, cross_entropy, ctc, foreach, fused, fused_reduce, fused_rows, index, linalg, matmul,
    padded_products, pooling, recurrent, reduce, resample, row_norm, scan, softmax, sort,
};
use crate::launch::kernel::{Defines, Family, entries};
use crate::launch::rows::Rows;
use crate::vendor::driver::MatrixUnits;
use rushlight_core::backend::{Activation, Complex, ReduceOp};
use rushlight_core::rows::Class;
use rushlight_core::{DType, Pointwise, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Representative dtypes: kernels are templates, so one dtype covers the others.
const FLOATS: [DType; 2] = [DType::F64, DType::BF16];
const SOME: [DType; 5] = [DType::F32, DType::F16, DType::I64, DType::I8, DType::Bool];

/// A kernel to be compiled.
pub struct Case {
    /// Its name.
    pub name: String,
    /// Its text.
    pub source: String,
    family: Family,
    /// Cases of one branch differ in element types and sizes alone.
    branch: String,
}

fn case(name: String, family: Family, defines: Defines) -> Case {
    Case { name, source: defines.source(family), family, branch: defines.branch(family) }
}

/// Each kernel of a family by itself, as it is compiled for use.
fn apart(name: &str, family: Family, defines: &Defines) -> Vec<Case> {
    let one = |entry: &String| Case {
        name: format!("{entry}, {name}"),
        source: defines.source_of(family, entry),
        family,
        branch: format!("{entry} of {}", defines.branch(family)),
    };
    entries(&defines.source(family)).iter().map(one).collect()
}

/// A pointwise form over contiguous inputs.
fn form(formula: Formula, compute: DType, out: DType, inputs: usize, lanes: u16) -> Form {
    let input = |i: usize| (i < inputs).then_some((compute, Lanes::Next));
    Form { formula, compute, out, inputs: std::array::from_fn(input), lanes, one_loop: lanes > 1, wide: false }
}

/// All given formulas in one kernel: compiling them one by one would take minutes.
fn together(name: &str, compute: DType, formulas: &[Formula]) -> Case {
    let (mut rows, mut sum) = (String::new(), String::from("convert<OUT>((C)(0"));
    for (i, &formula) in formulas.iter().enumerate() {
        let (row, _, call) = form(formula, compute, compute, 5, 1).expression();
        rows += &row.replace("row_value", &format!("row_{i}"));
        // The parameters' values do not matter here.
        let call = (0..4).fold(call, |call, p| call.replace(&format!("param{p}"), "x[0][u][v]"));
        sum += &format!(" + plain({})", call.replace("row_value", &format!("row_{i}")));
    }
    let base = form(Formula::Copy, compute, compute, 5, 1).defines();
    let defines = base.redefine("ROW", rows).redefine("RESULT", sum + "))");
    let real = compute.is_float();
    let defines = defines.redefine("REAL", real as u8).redefine("INTEGER", !real as u8);
    // Each has rows of its own.
    let name = format!("{name} in {compute}");
    Case { branch: name.clone(), name, source: defines.source(Family::Pointwise), family: Family::Pointwise }
}

pub fn pointwise() -> Vec<Case> {
    let of = |classes: &[Class]| -> Vec<Formula> {
        Pointwise::ALL.iter().filter(|op| classes.contains(&op.class())).map(|&op| Formula::Row(op)).collect()
    };
    let derivatives: Vec<Formula> = Pointwise::ALL
        .iter()
        .flat_map(|&op| (0..op.grad_text().len()).map(move |wrt| Formula::Derivative(op, wrt as u8)))
        .collect();
    let mut cases = vec![
        together("values", DType::F32, &of(&[Class::Num, Class::Real, Class::Compare, Class::Test])),
        together("values", DType::F64, &of(&[Class::Num, Class::Real, Class::Compare, Class::Test])),
        together("values", DType::I64, &of(&[Class::Num, Class::Compare, Class::Bits])),
        together("values", DType::I32, &of(&[Class::Num, Class::Compare, Class::Bits])),
        together("derivatives", DType::F32, &derivatives),
    ];
    for dtype in [DType::F32, DType::BF16, DType::U8, DType::Bool] {
        for (formula, inputs) in [(Formula::Copy, 1), (Formula::Select, 3)] {
            let f = form(formula, dtype, dtype, inputs, (16 / dtype.size()) as u16);
            cases.push(case(format!("{formula:?} of {dtype}"), Family::Pointwise, f.defines()));
        }
        let mut f = form(Formula::Copy, dtype, dtype, 1, 2);
        f.inputs[0] = Some((DType::BF16, Lanes::Apart));
        f.wide = true;
        cases.push(case(format!("bfloat16 to {dtype}"), Family::Pointwise, f.defines()));
    }
    let row = form(Formula::Row(Pointwise::Add), DType::U8, DType::U8, 2, 16);
    cases.push(case("add".into(), Family::Pointwise, row.defines()));
    cases
}

pub fn families(units: MatrixUnits) -> Vec<Case> {
    let mut cases = Vec::new();
    for lanes in [4, 1] {
        cases.push(case(format!("fused, {lanes} lanes"), Family::Fused, fused::example(lanes)));
        for along in [true, false] {
            let name = format!("fused sum, {lanes} lanes, along {along}");
            cases.push(case(name, Family::FusedReduce, fused_reduce::example(along, lanes)));
        }
        cases.push(case(format!("fused rows, {lanes} lanes"), Family::FusedRows, fused_rows::example(lanes)));
    }
    let mut add = |name: String, family: Family, defines: Defines| cases.push(case(name, family, defines));
    for dtype in FLOATS {
        for (columns, what) in [(512, "cached"), (1 << 20, "streamed"), (7, "odd")] {
            let rows = Rows::new(dtype, columns, &[0]);
            add(format!("softmax {dtype} {what}"), Family::Softmax, rows.defines().define("LOG", 0));
            let form = row_norm::Form { rms: false, parameter: dtype, low: DType::BF16, gradient: dtype };
            add(format!("row norm {dtype} {what}"), Family::RowNorm, form.defines(rows.defines()));
            let rows = Rows { steps: 0, ..rows };
            add(
                format!("cross-entropy {dtype} {what}"),
                Family::CrossEntropy,
                cross_entropy::defines(rows, true, false, dtype),
            );
        }
        add(format!("softmax columns {dtype}"), Family::Softmax, softmax::column_defines(true, dtype));
        add(format!("recurrent {dtype}"), Family::Recurrent, recurrent::defines(dtype));
        for part in ["COLUMNS", "COLUMNS_JOIN"] {
            let defines = row_norm::defines(row_norm::column_defines(part, dtype), true, dtype);
            add(format!("row norm {part} {dtype}"), Family::RowNorm, defines);
        }
        for part in ["STATISTICS", "RUNNING"] {
            for (across, lanes) in [(false, 1), (false, 16 / dtype.size() as u16), (true, 2)] {
                let share = batch_norm::Share { lanes, channels: if across { 8 } else { 1 }, across, wide: lanes == 1 };
                let defines = batch_norm::defines(part, dtype, DType::F32, share);
                add(format!("batch norm {part} {dtype} {share:?}"), Family::BatchNorm, defines);
                let stages = if across { 2 | 8 } else { 1 | 2 | 4 };
                let defines = batch_norm::chain_defines(dtype, DType::F32, share, stages);
                add(format!("batch norm chain {stages} {dtype} {share:?}"), Family::BatchNorm, defines);
                let defines = batch_norm::backward_defines(dtype, DType::F32, share, across as u16 + 1);
                add(format!("batch norm gradients {dtype} {share:?}"), Family::BatchNorm, defines);
            }
        }
        for part in ["UNFOLD", "BIAS", "DIRECT"] {
            add(format!("conv {part} {dtype}"), Family::Conv, conv::defines(part, dtype));
        }
        for (part, flipped, slices) in [("CORRELATE", true, 1), ("WEIGHT", false, 6)] {
            let form = conv_few::Form { dtype, channels: [3, 6], kernel: [5, 4], flipped, slices };
            add(format!("conv few {part} {dtype}"), Family::ConvFew, form.defines(part));
        }
        for (part, vector, lanes, tile) in
            [("ARRANGE", 1, 32, 8), ("CORRELATE", 2, 16, 7), ("SPREAD", 2, 32, 4), ("WEIGHT", 1, 32, 8)]
        {
            let form = conv_depthwise::Form { dtype, vector, lanes, tile, kernel: [7, 5], steps: [1 + vector % 2, 1] };
            add(format!("conv depthwise {part} {dtype}"), Family::ConvDepthwise, form.defines(part));
        }
        for (taps, last, lanes) in [
            (pooling::Taps::Dense, true, 16 / dtype.size() as u16),
            (pooling::Taps::Adaptive, false, 1),
            (pooling::Taps::Dilated, true, 1),
        ] {
            let form = pooling::Form { dtype, taps, wide: lanes == 1, last, lanes };
            add(format!("pool {form:?}"), Family::Pool, form.defines());
        }
        for part in
            ["FORWARD", "BACKWARD", "SHORT", "PRODUCTS"].into_iter().filter(|p| *p != "PRODUCTS" || dtype.size() >= 4)
        {
            let form = attention::Form { dtype, tile: 16, causal: true, mask: 2, dropout: true };
            add(format!("attention {part} {dtype}"), Family::Attention, form.defines(part));
        }
        if let (MatrixUnits::TensorCores(capability), 2) = (units, dtype.size()) {
            for d in [64, 128] {
                let form = attention::Form { dtype, tile: 0, causal: d == 64, mask: (d % 3) as u16, dropout: d == 128 };
                for (part, rows) in flash::Part::ALL.into_iter().flat_map(|part| [(part, 64), (part, 65)]) {
                    let shape = flash::Shape::new(part, rows, d, capability, 227 << 10);
                    add(format!("flash {part:?} {d} {dtype} {rows}"), Family::Flash, shape.defines(form));
                }
                // Heads that need twice the registers.
                let large = if d == 64 { 160 } else { 256 };
                let shape = |part| flash::Shape::new(part, 65, large, capability, 227 << 10);
                for shape in flash::Part::ALL.into_iter().flat_map(|part| shape(part).all()) {
                    add(format!("flash {shape:?} {dtype}"), Family::Flash, shape.defines(form));
                }
                // Rows for which three groups or four do the forward pass.
                let plain = attention::Form { mask: 0, dropout: false, ..form };
                let forms = [(1024, plain), (1536, plain), (1536, form)];
                let parts = flash::Part::ALL.into_iter().filter(|p| d == 128 || *p == flash::Part::Forward);
                let cases = parts.flat_map(|part| forms.map(|(rows, form)| (part, rows, form)));
                // Larger heads are for the forward pass alone.
                let large = [plain, form].map(|form| (flash::Part::Forward, 2 * d.max(96), 1024, form));
                let cases = cases.map(|(part, rows, form)| (part, d, rows, form)).chain(large);
                for (part, d, rows, form) in cases.filter(|_| capability == (9, 0)) {
                    let (shape, mask) = (flash_hopper::Shape::new(part, d, rows, form), form.mask);
                    let name = format!("flash hopper {part:?} {d} {dtype} {rows} mask {mask}");
                    add(name, Family::FlashHopper, shape.defines(form));
                }
            }
        }
        if units == MatrixUnits::Mfma && dtype.size() == 2 {
            for (d, mask, part) in
                [16, 128].into_iter().zip([1, 2]).flat_map(|(d, m)| flash::Part::ALL.map(|p| (d, m, p)))
            {
                for dtype in [DType::F16, dtype] {
                    let form = attention::Form { dtype, tile: 0, causal: d == 128, mask, dropout: d == 128 };
                    add(
                        format!("flash mfma {part:?} {d} {dtype}"),
                        Family::FlashMfma,
                        flash_mfma::defines(part, d, form),
                    );
                }
            }
        }
        for (rule, states) in [(0, 0), (0, 1), (1, 3), (1, 7), (2, 3), (3, 7), (4, 3)] {
            let defines = foreach::update_defines(rule, states, dtype, (16 / dtype.size()) as u16, DType::F32);
            add(format!("update {rule} {states} {dtype}"), Family::Foreach, defines);
        }
        add(format!("foreach norm {dtype}"), Family::Foreach, foreach::norm_defines(13, dtype));
        add(format!("foreach norm's end {dtype}"), Family::Foreach, foreach::finish_defines(10, dtype));
        add(format!("foreach copy {dtype}"), Family::Foreach, foreach::copy_defines(DType::F32, dtype));
        add(format!("foreach scale {dtype}"), Family::Foreach, foreach::scale_defines(dtype, DType::F32, true));
        add(format!("epilogue {dtype}"), Family::MatMul, matmul::epilogue_defines(dtype, true, Activation::Gelu));
        let lanes = if dtype.size() == 2 { 4 } else { 1 };
        add(format!("move rows {dtype}"), Family::MatMul, padded_products::move_defines(dtype, lanes));
        let dropout = Defines::default().define("DROPOUT", 1).define("WIDE", 1).define("WORDS", 1).define("DENSE", 1);
        let dropout = dropout.dtype("T", dtype).define("WIDE_T", crate::launch::kernel::wide_type(dtype));
        add(format!("dropout {dtype}"), Family::Random, dropout);
    }
    add("a step's begin".into(), Family::Capture, capture::begin_defines());
    add("a step's end".into(), Family::Capture, capture::end_defines());
    for (dtype, op) in [(DType::BF16, ReduceOp::Mean), (DType::F64, ReduceOp::Max), (DType::Bool, ReduceOp::Sum)] {
        add(format!("{op} of {dtype} across ranks"), Family::Collective, collectives::combine_defines(dtype, op));
    }
    add("flags of ranks".into(), Family::Collective, shared_memory::signal_defines());
    for dtype in SOME {
        // Every code in one dtype; in the others the codes that depend on the dtype.
        let codes: Vec<u16> = match dtype {
            DType::F32 => (0..=18).collect(),
            DType::I64 => vec![2, 6, 17],
            _ => vec![0, 5],
        };
        for code in codes {
            let across = code % 2 == 0;
            let lanes = if code % 3 == 0 { 1 } else { 2 };
            let form = reduce::Form {
                code,
                x: dtype,
                out: dtype,
                threads_in: 8,
                across,
                lanes,
                one_loop: false,
                wide: across,
            };
            add(format!("reduce {code} {dtype}"), Family::Reduce, form.defines("FOLD").define("JOIN", 1));
        }
        if matches!(dtype, DType::F32 | DType::F64) {
            add(format!("linalg {dtype}"), Family::Linalg, linalg::defines(dtype));
            add(format!("complex {dtype}"), Family::Complex, complex::defines(Complex::Div, dtype));
        }
        for code in [0, 2, 3] {
            if dtype.is_float() || code != 2 {
                let out = if dtype.is_float() { dtype } else { DType::I64 };
                add(format!("scan {code} {dtype}"), Family::Scan, scan::defines(code, dtype, out, code % 2 == 0, true));
            }
        }
        let all = sort::unique_defines(sort::Order::values(dtype, 5000, false), 4).define("SORT_BLOCK", 1);
        let all = all.define("RADIX_COUNT", 1).define("RADIX_SCATTER", 1).define("SORT_GATHER", 1).define("SEARCH", 1);
        let all = all.define("TOPK_SHORT", 1).define("SHORT", 8).define("TOPK_ROWS", 1);
        add(format!("sort {dtype}"), Family::Sort, all.dtype("OUT", DType::I32));
        for code in [1, 4] {
            let defines = index::segments_defines(code, dtype, code % 2 == 1, 2);
            let defines = defines.define("SCATTER", 1).define("SEGMENTS_FEW", 1);
            add(format!("scatter {code} {dtype}"), Family::Index, defines);
        }
        add(format!("nonzero {dtype}"), Family::Index, index::defines("NONZERO").dtype("T", dtype));
        let activation = if dtype.is_float() { Activation::GeluTanh } else { Activation::Relu };
        if dtype != DType::Bool {
            add(format!("product {dtype}"), Family::MatMul, matmul::product_defines(dtype, dtype, true, activation));
        }
        if matches!(dtype, DType::F16 | DType::BF16) {
            let widened = matmul::product_defines(dtype, DType::F32, false, Activation::None);
            add(format!("product {dtype} as float32"), Family::MatMul, widened);
        }
        let number = if dtype.is_float() { "double" } else { "i64" };
        let arange = Defines::default().define("ARANGE", 1).define("WIDE", 1).define("NUM", number).dtype("OUT", dtype);
        add(format!("arange {dtype}"), Family::Copy, arange);
        for kind in 0..4 {
            let words = if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && kind != 2 { 1 } else { 2 };
            let random = Defines::default().define("RANDOM", 1).define("WIDE", 1).define("KIND", kind);
            add(format!("random {kind} {dtype}"), Family::Random, random.define("WORDS", words).dtype("OUT", dtype));
        }
    }
    for dtype in [DType::U8, DType::I16, DType::I32, DType::I64] {
        let whole = (4 / dtype.size()).max(1);
        for vector in (1..=whole).step_by((whole - 1).max(1)) {
            add(format!("transpose {dtype} {vector}"), Family::Copy, copy::transpose_defines(dtype, vector));
        }
        add(format!("flip {dtype}"), Family::Copy, copy::flip_defines(dtype));
    }
    for bytes in [1, 2, 4, 8, 16] {
        add(format!("move {bytes}"), Family::Index, index::move_defines(true, bytes, true));
        add(format!("gather {bytes}"), Family::Index, index::gather_defines(bytes));
    }
    for (code, dtype) in [(0, DType::F32), (1, DType::F64), (2, DType::F32)] {
        add(format!("resample {code} {dtype}"), Family::Resample, resample::defines(code, dtype));
    }
    for dtype in [DType::F32, DType::F64] {
        add(format!("ctc {dtype}"), Family::Ctc, ctc::defines("FORWARD", dtype).define("BACKWARD", 1));
    }
    for dtype in [DType::I32, DType::I64] {
        add(format!("scatter sum {dtype}"), Family::Index, index::sum_defines(dtype));
    }
    for dtype in [DType::F32, DType::F64] {
        add(format!("histogram {dtype}"), Family::Index, index::defines("HISTOGRAM").dtype("T", dtype));
    }
    add("resolve".into(), Family::Index, index::defines("RESOLVE").define("RESOLVE_LINE", 1));
    cases
}

/// Kernels each by itself: none needs another one's definitions.
pub fn each_apart() -> Vec<Case> {
    let rows = Rows::new(DType::BF16, 512, &[0]);
    let share = batch_norm::Share { lanes: 8, channels: 1, across: false, wide: false };
    let form = attention::Form { dtype: DType::F32, tile: 16, causal: false, mask: 0, dropout: false };
    let few = conv_few::Form { dtype: DType::F32, channels: [3, 6], kernel: [5, 5], flipped: false, slices: 6 };
    let steps = [1, 1];
    let depthwise = conv_depthwise::Form { dtype: DType::F32, vector: 2, lanes: 32, tile: 8, kernel: [7, 7], steps };
    let pooling = pooling::Form { dtype: DType::F32, taps: pooling::Taps::Dense, wide: false, last: true, lanes: 4 };
    let cases = [
        (Family::Softmax, rows.defines().define("LOG", 0)),
        (Family::Softmax, softmax::column_defines(true, DType::F32)),
        (
            Family::RowNorm,
            row_norm::Form { rms: false, parameter: DType::F32, low: DType::BF16, gradient: DType::BF16 }
                .defines(rows.defines()),
        ),
        (Family::CrossEntropy, cross_entropy::defines(Rows { steps: 0, ..rows }, false, true, DType::BF16)),
        (Family::BatchNorm, batch_norm::defines("STATISTICS", DType::BF16, DType::F32, share)),
        (Family::BatchNorm, batch_norm::backward_defines(DType::BF16, DType::F32, share, 1)),
        (Family::Attention, form.defines("BACKWARD")),
        (Family::Attention, form.defines("PRODUCTS")),
        (Family::Conv, conv::defines("UNFOLD", DType::F32)),
        (Family::Conv, conv::defines("DIRECT", DType::F32)),
        (Family::ConvFew, few.defines("WEIGHT")),
        (Family::ConvDepthwise, depthwise.defines("WEIGHT")),
        (Family::Pool, pooling.defines()),
        (Family::Index, index::defines("NONZERO").dtype("T", DType::F32)),
    ];
    // Which entry points a definition leaves in is the text's affair: those it leaves out compile to nothing.
    cases.iter().flat_map(|(family, defines)| apart(&format!("{family:?}"), *family, defines)).collect()
}

/// One case of every branch of every family: all that conditions in the texts choose between. `turn` chooses among a
/// branch's cases, so that several architectures get several.
pub fn every_branch(cases: Vec<Case>, turn: usize) -> Vec<Case> {
    let mut branches: BTreeMap<(Family, String), Vec<Case>> = BTreeMap::new();
    for case in cases {
        branches.entry((case.family, case.branch.clone())).or_default().push(case);
    }
    let of = |mut cases: Vec<Case>| cases.swap_remove(turn % cases.len());
    branches.into_values().map(of).collect()
}

/// Whether all cases are compiled, not one of every branch: `RUSHLIGHT_ALL_KERNELS=1`, as `scripts/nightly` sets it.
pub fn all_kernels() -> bool {
    std::env::var_os("RUSHLIGHT_ALL_KERNELS").is_some_and(|v| v == "1")
}

/// Compiles cases on all processors. Gives the names of the kernels that the images have: `symbol` is how an image
/// contains one. Panics with the compiler's messages where it refuses a text.
pub fn compile(
    cases: &[Case],
    build: impl Fn(&Case) -> Result<Vec<u8>> + Sync,
    symbol: impl Fn(&str) -> String + Sync,
) -> BTreeSet<String> {
    let began = Instant::now();
    let (next, wrong, compiled) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    match build(case) {
                        Ok(image) => {
                            let has = |entry: &String| {
                                let symbol = symbol(entry);
                                image.windows(symbol.len()).any(|bytes| bytes == symbol.as_bytes())
                            };
                            compiled.lock().unwrap().extend(entries(&case.source).into_iter().filter(has));
                        }
                        Err(e) => wrong.lock().unwrap().push(e.to_string()),
                    }
                }
            });
        }
    });
    println!("{:.1} s", began.elapsed().as_secs_f64());
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    assert!(wrong.is_empty(), "{} of {} kernels:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    compiled.into_inner().unwrap()
}

/// Panics unless these are all kernels that a GPU with such matrix units uses: a kernel that no case has is named.
pub fn check_complete(compiled: &BTreeSet<String>, units: MatrixUnits) {
    let used = |family: &&Family| match family {
        Family::Flash => matches!(units, MatrixUnits::TensorCores(_)),
        Family::FlashHopper => units == MatrixUnits::TensorCores((9, 0)),
        Family::FlashMfma => units == MatrixUnits::Mfma,
        _ => true,
    };
    let names: BTreeSet<String> = Family::ALL.iter().filter(used).flat_map(|family| entries(family.text())).collect();
    let missing: Vec<&String> = names.difference(compiled).collect();
    assert!(missing.is_empty(), "the catalogue has no case of these kernels of {}: {missing:?}", names.len());
    println!("all {} kernels", names.len());
}

/// Says why a test is not run. In CI (`CI` is set) nothing may be missing: there it fails.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|v| v.is_empty()), "CI must not skip this test: {reason}");
    println!("skipped: {reason}");
}
