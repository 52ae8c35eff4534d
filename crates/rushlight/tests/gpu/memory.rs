//! A captured step needs no more memory than the same step without capture.

use super::{device, turn};
use rushlight::prelude::*;

const ELEMENTS: usize = 1 << 18;
const LAYERS: usize = 8;

/// When a step clears its gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Clears {
    First,
    BeforeBackward,
    Last,
}

/// The peak and the reserved bytes of some steps: activations, gradients and state of about the same size.
fn bytes(device: Device, enabled: bool, clears: Clears, lower: Option<DType>) -> Result<(usize, usize)> {
    empty_cache(&device)?;
    reset_peak_memory(&device)?;
    manual_seed(1);
    let weights: Vec<Tensor> =
        (0..LAYERS).map(|_| Tensor::randn_with([ELEMENTS], device)?.requires_grad_(true)).collect::<Result<_>>()?;
    let mut optimizer = AdamW::new(weights.clone(), 1e-3)?;
    let mut capture = Capture::new().enabled(enabled);
    let x = Tensor::ones_with([ELEMENTS], device)?;
    for _ in 0..6 {
        let loss = capture.run(std::array::from_ref(&x), |[x]| {
            if clears == Clears::First {
                optimizer.zero_grad();
            }
            let loss = {
                let _precision = set_autocast(lower)?;
                weights.iter().try_fold(x.clone(), |x, w| x.mul(w)?.tanh()?.add(&x))?.mean(..)?
            };
            if clears == Clears::BeforeBackward {
                optimizer.zero_grad();
            }
            loss.backward()?;
            clip_grad_norm_(&weights, 1.0)?;
            optimizer.step()?;
            if clears == Clears::Last {
                optimizer.zero_grad();
            }
            Ok(loss)
        })?;
        assert!(loss.item::<f32>()?.is_finite());
    }
    let stats = memory_stats(&device)?;
    Ok((stats.peak, stats.reserved))
}

#[test]
fn captured_steps_need_no_more_memory() -> Result<()> {
    let _turn = turn();
    let device = device();
    if device.is_cpu() {
        println!("skipped: RUSHLIGHT_TEST_DEVICE names no GPU");
        return Ok(());
    }
    // The copy of the input, and what changes from replay to replay.
    let own = 4 * ELEMENTS + (64 << 10);
    for clears in [Clears::First, Clears::BeforeBackward, Clears::Last] {
        for lower in [None, Some(DType::BF16)] {
            let eager = bytes(device, false, clears, lower)?;
            let captured = bytes(device, true, clears, lower)?;
            let text = format!("{clears:?} {lower:?}: eager {eager:?}, captured {captured:?} (peak, reserved)");
            println!("{text}");
            assert!(captured.0 <= eager.0 + own, "{text}");
            assert!(captured.1 <= eager.1 + (20 << 20), "{text}");
        }
    }
    Ok(())
}
