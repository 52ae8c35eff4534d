//! Anomaly detection. It is process-wide, so the test has a separate process.

use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{is_anomaly_enabled, set_detect_anomaly};

#[test]
fn the_op_that_made_nan_is_named() {
    let root_of = |v: f32| {
        Tensor::new([v]).unwrap().requires_grad_(true).unwrap().sqrt().unwrap().mul(0.0).unwrap().sum(..).unwrap()
    };
    // Zero times an infinite slope.
    root_of(0.0).backward().unwrap();
    set_detect_anomaly(true);
    assert!(is_anomaly_enabled());
    root_of(1.0).backward().unwrap();
    let text = root_of(0.0).backward().unwrap_err().to_string();
    set_detect_anomaly(false);
    assert!(text.contains("'SqrtBackward0' returned nan values in its 0th output"), "{text}");
    // The position of the forward call.
    assert!(text.contains("anomaly"), "{text}");
}
