//! Runs attention's kernels for tensor cores, also those with producer and consumer warps, on an emulated
//! multiprocessor (`emulator/`). Needs a C++ compiler, but no GPU.

use crate::families::attention::Form;
use crate::families::attention::flash::{self, Part};
use crate::families::attention::flash_hopper::Shape;
use rushlight_core::DType;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Event orders that every case is run with.
const SEEDS: [&str; 2] = ["1", "2"];

fn source(shape: Shape, form: Form) -> String {
    let texts = [
        include_str!("../kernels/fragments.cu"),
        include_str!("../kernels/flash_scores.cu"),
        include_str!("../kernels/hopper_tasks.cu"),
        include_str!("../kernels/flash_hopper.cu"),
        "#include \"attention.h\"\n",
    ];
    shape.defines(form).program("#include \"instructions.h\"", &texts)
}

/// The same of a kernel for products of single warps.
fn warp_source(shape: flash::Shape, form: Form) -> String {
    let texts = [
        include_str!("../kernels/fragments.cu"),
        include_str!("../kernels/tensor_cores.cu"),
        include_str!("../kernels/flash_scores.cu"),
        include_str!("../kernels/flash.cu"),
        "#include \"attention.h\"\n",
    ];
    shape.defines(form).program("#include \"warp_instructions.h\"", &texts)
}

/// The error, if any.
fn run(directory: &Path, name: &str, text: &str) -> Result<(), String> {
    let (file, program) = (directory.join(format!("{name}.cpp")), directory.join(name));
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let includes = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/emulator");
    let made = Command::new("c++").args(["-O2", "-std=c++17", "-w", includes, "-o"]).arg(&program).arg(&file).output();
    let made = made.map_err(|e| e.to_string())?;
    if !made.status.success() {
        return Err(format!("{name} does not compile:\n{}", String::from_utf8_lossy(&made.stderr)));
    }
    for seed in SEEDS {
        let out = Command::new(&program).arg(seed).output().map_err(|e| e.to_string())?;
        if !out.status.success() {
            return Err(format!("{name}, seed {seed}:\n{}", String::from_utf8_lossy(&out.stdout)));
        }
    }
    Ok(())
}

#[test]
fn attention_on_an_emulated_multiprocessor() {
    if Command::new("c++").arg("--version").output().is_err() {
        return crate::catalogue::skip("no C++ compiler (c++) to build the emulated multiprocessor with");
    }
    let (bf16, f16) = (DType::BF16, DType::F16);
    let cases = [
        // With this shape, three groups handle 1536 rows, four 1024.
        (Part::Forward, 64, 1536, bf16, true, 0, false),
        (Part::Forward, 64, 1024, bf16, true, 0, false),
        (Part::Forward, 64, 1024, f16, true, 0, true),
        (Part::Forward, 128, 1024, f16, false, 0, false),
        (Part::Forward, 64, 1024, bf16, false, 1, true),
        (Part::Forward, 128, 1024, f16, true, 2, false),
        (Part::Queries, 128, 1024, bf16, false, 1, false),
        (Part::Queries, 128, 1024, bf16, true, 0, false),
        (Part::Keys, 128, 1024, f16, true, 0, true),
        (Part::Keys, 128, 1024, bf16, true, 0, false),
        (Part::Keys, 128, 1024, bf16, false, 2, false),
    ];
    let mut programs: Vec<(String, String)> = Vec::new();
    for (part, d, rows, dtype, causal, mask, dropout) in cases {
        let form = Form { dtype, tile: 0, causal, mask, dropout };
        let name = format!("{part:?}_{d}_{rows}_{dtype}_{causal}_{mask}_{dropout}");
        programs.push((name, source(Shape::new(part, d, rows, form), form)));
    }
    // Products of single warps; heads too large for registers to hold their rows.
    for (part, d, dtype, causal, mask) in [
        (Part::Forward, 256, bf16, true, 0),
        (Part::Forward, 64, bf16, false, 1),
        (Part::Forward, 192, f16, false, 2),
        (Part::Queries, 256, f16, false, 1),
        (Part::Keys, 192, bf16, true, 0),
    ] {
        let form = Form { dtype, tile: 0, causal, mask, dropout: true };
        for (n, shape) in flash::Shape::new(part, 65, d, (8, 0), 227 << 10).all().enumerate() {
            programs.push((format!("{part:?}_{d}_{n}"), warp_source(shape, form)));
        }
    }
    let directory = std::env::temp_dir().join(format!("rushlight-emulated-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some((name, text)) = programs.get(next.fetch_add(1, Relaxed)) {
                    if let Err(e) = run(&directory, name, text) {
                        wrong.lock().unwrap().push(e);
                    }
                }
            });
        }
    });
    std::fs::remove_dir_all(&directory).ok();
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
