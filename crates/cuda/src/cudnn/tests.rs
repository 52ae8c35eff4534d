//! cuDNN plans graphs for devices that are not there: attention's are, for the chips named here, with whatever cuDNN is found. `scripts/cudnn` fetches one
//! and runs these.

use super::Cudnn;
use super::attention::{OLDEST, Pass, Problem, placed};
use super::graph::{Answer, Descriptor, Four, Kind, attribute, packed};
use super::plan::Target;
use rushlight_core::DType;

/// A chip: its name, compute capability, multiprocessors, shared memory of a block, megabytes of memory and of cache.
struct Chip(&'static str, (i32, i32), u64, u64, u64, u64);

const CHIPS: [Chip; 3] = [
    Chip("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166_912, 81_920, 40),
    Chip("NVIDIA H200", (9, 0), 132, 232_448, 143_000, 60),
    Chip("NVIDIA B200", (10, 0), 148, 232_448, 183_000, 126),
];

impl Chip {
    fn target(&self, api: &'static Cudnn) -> Answer<Target> {
        let Chip(name, (major, minor), multiprocessors, shared, memory, cache) = *self;
        let version = major * 100 + minor * 10;
        let (memory, cache) = (memory << 20, cache << 20);
        let text = format!(
            r#"{{"deviceName": "{name}", "deviceVer": {version}, "multiProcessorCount": {multiprocessors},
            "maxSharedMemoryPerBlockOptin": {shared}, "totalGlobalMem": {memory}, "l2CacheSize": {cache},
            "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
            "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
            "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
            "warpSize": 32, "smClockRateKHz": 1900000, "memClockRateKHz": 3000000, "memoryBusWidth": 6144,
            "smCountOrigin": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "cudaDeviceId": 0,
            "driverVer": 13000}}"#
        );
        let properties = Descriptor::new(api, Kind::DeviceProperties)?
            .set(attribute::DEVICEPROP_JSON_REPRESENTATION, text.as_bytes())?
            .finalize()?;
        Ok(Target::Properties(properties))
    }
}

/// The library. Whoever asks for these tests has one that can plan.
fn library() -> &'static Cudnn {
    let api = Cudnn::get().unwrap_or_else(|e| panic!("{e}"));
    // SAFETY: the driver's library, or one that stands for it.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") };
    assert!(
        driver.is_ok(),
        "cuDNN compiles only where there is a libcuda.so.1; scripts/cudnn has one that does nothing"
    );
    assert!(api.number() >= OLDEST, "cuDNN {} ({}) is older than {OLDEST}", api.number(), api.path);
    api
}

/// How tensors lie.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Row-major.
    Packed,
    /// `[batch, length, heads, d]`, as projections leave them.
    Interleaved,
    /// Queries, keys and values in one `[batch, length, 3, heads, d]`.
    Joint,
}

fn problem(pass: Pass, dtype: DType, causal: bool, sizes: [i64; 6], lie: Lie) -> Problem {
    let [batch, heads, kv_heads, l, s, d] = sizes;
    let interleaved =
        |length: i64, heads: i64, parts: i64| -> Four { [length * parts * heads * d, d, parts * heads * d, 1] };
    let strides = |heads: i64, length: i64, joint: bool| match lie {
        Lie::Packed => packed([batch, heads, length, d]),
        Lie::Joint if joint => interleaved(length, heads, 3),
        _ => interleaved(length, heads, 1),
    };
    let (q, k, out) = (strides(heads, l, true), strides(kv_heads, s, true), strides(heads, l, false));
    let strides = match pass {
        Pass::Forward => [q, k, k, out, [0; 4], [0; 4], [0; 4], [0; 4]],
        Pass::Backward => [q, k, k, out, out, q, k, k],
    };
    Problem { pass, dtype, causal, sizes, strides }
}

#[test]
fn tensors_are_given_as_cudnn_takes_them() {
    let sizes = [2, 3, 5, 64];
    let interleaved = [960, 64, 192, 1];
    assert_eq!(placed(1 << 20, sizes, interleaved), Some([960, 64, 192, 1]));
    assert_eq!(placed((1 << 20) + 8, sizes, interleaved), None, "an address that 16 bytes cannot be loaded from");
    assert_eq!(placed(1 << 20, sizes, [960, 64, 196, 1]), None, "rows at such addresses");
    assert_eq!(placed(1 << 20, sizes, [1, 3, 15, 30]), None, "columns apart");
    assert_eq!(placed(1 << 20, sizes, [0, 64, 192, 1]), None, "a batch of one, repeated");
    // Where there is one of something its stride means nothing.
    assert_eq!(placed(1 << 20, [1, 1, 5, 64], [7, 0, 64, 1]), Some([320, 320, 64, 1]));
}

#[test]
fn wrong_versions_are_left_alone() {
    let with = |pass, keys| problem(pass, DType::BF16, false, [1, 2, 2, 64, keys, 64], Lie::Packed);
    assert!(!with(Pass::Forward, 128).is_right(91_001) && with(Pass::Forward, 100).is_right(91_002));
    assert!(with(Pass::Backward, 128).is_right(91_002) && !with(Pass::Backward, 100).is_right(91_500));
    assert!(with(Pass::Backward, 100).is_right(91_600));
}

#[test]
#[ignore = "takes minutes where there is a cuDNN: scripts/cudnn runs it"]
fn attention_is_planned_without_a_device() {
    let api = library();
    println!("cuDNN {} ({})", api.number(), api.path);
    // Head sizes, shared keys, more queries than keys and the other way round, sizes that fill no block.
    let sizes = [
        [16, 12, 12, 1024, 1024, 64],
        [16, 6, 6, 1024, 1024, 128],
        [2, 8, 2, 512, 512, 64],
        [1, 8, 1, 256, 256, 128],
        [2, 4, 2, 512, 1024, 64],
        [2, 4, 4, 384, 128, 64],
        [2, 4, 4, 128, 1024, 128],
        [1, 4, 2, 200, 333, 32],
        [1, 2, 1, 77, 70, 96],
        [1, 1, 1, 300, 40, 40],
        [1, 2, 2, 2, 2, 8],
    ];
    let (mut planned, mut wrong) = (0, Vec::new());
    for chip in &CHIPS {
        let target = chip.target(api).expect("properties of a device");
        for (i, &sizes) in sizes.iter().enumerate() {
            for pass in [Pass::Forward, Pass::Backward] {
                for causal in [false, true] {
                    for lie in [Lie::Packed, Lie::Interleaved, Lie::Joint] {
                        // A joint tensor has as many keys as queries and heads of each.
                        if matches!(lie, Lie::Joint) && (sizes[1] != sizes[2] || sizes[3] != sizes[4]) {
                            continue;
                        }
                        let dtype = if i % 2 == 0 { DType::BF16 } else { DType::F16 };
                        let problem = problem(pass, dtype, causal, sizes, lie);
                        if !problem.is_right(api.number()) {
                            continue;
                        }
                        let begun = std::time::Instant::now();
                        match problem.plan(api, &target, chip.1) {
                            Ok(plan) => {
                                planned += 1;
                                let (engine, workspace) = (plan.engine().expect("an engine"), plan.workspace);
                                // What it would be given, of the right kinds and as many as it takes.
                                let operands = [5, 10][pass as usize] + [1, 2][pass as usize] + causal as usize;
                                assert!(plan.pack(&vec![256; operands], 0).is_ok() && plan.pack(&[256], 0).is_err());
                                let ms = begun.elapsed().as_millis();
                                println!(
                                    "{} {pass:?} {dtype} causal {causal} {sizes:?} {lie:?}: engine {engine}, workspace {workspace}, {ms} ms",
                                    chip.0
                                );
                            }
                            Err(e) => wrong.push(format!("{} {problem:?} {lie:?}: {e:?}", chip.0)),
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} not planned, {planned} planned:\n{}", wrong.len(), wrong.join("\n"));
    println!("{planned} planned");
}
