super::ops! {
    "relu" => |a| a.t(0)?.relu();
    "relu6" => |a| a.t(0)?.relu6();
    "gelu" => |a| match a.text(1, "approximate") {
        Some("tanh") => a.t(0)?.gelu_tanh(),
        _ => a.t(0)?.gelu(),
    };
    "silu" => |a| a.t(0)?.silu();
    "mish" => |a| a.t(0)?.mish();
    "softplus" => |a| a.t(0)?.softplus(a.f64(1, "beta", 1.0)?, a.f64(2, "threshold", 20.0)?);
    "softsign" => |a| a.t(0)?.softsign();
    "elu" => |a| a.t(0)?.elu(a.f64(1, "alpha", 1.0)?);
    "selu" => |a| a.t(0)?.selu();
    "celu" => |a| a.t(0)?.celu(a.f64(1, "alpha", 1.0)?);
    "leaky_relu" => |a| a.t(0)?.leaky_relu(a.f64(1, "negative_slope", 0.01)?);
    "hardswish" => |a| a.t(0)?.hardswish();
    "hardsigmoid" => |a| a.t(0)?.hardsigmoid();
    "hardtanh" => |a| a.t(0)?.hardtanh(a.f64(1, "min_val", -1.0)?, a.f64(2, "max_val", 1.0)?);
    "hardshrink" => |a| a.t(0)?.hardshrink(a.f64(1, "lambd", 0.5)?);
    "softshrink" => |a| a.t(0)?.softshrink(a.f64(1, "lambd", 0.5)?);
    "tanhshrink" => |a| a.t(0)?.tanhshrink();
    "logsigmoid" => |a| a.t(0)?.logsigmoid();
    "threshold" => |a| a.t(0)?.threshold(a.f64(1, "threshold", 0.0)?, a.f64(2, "value", 0.0)?);
    "prelu" => |a| a.t(0)?.prelu(a.t(1)?);
}
