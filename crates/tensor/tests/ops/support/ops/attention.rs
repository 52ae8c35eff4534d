use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{AttentionOptions, Tensor};

const KEYWORD: usize = usize::MAX;

fn attention(a: &Args) -> Result<Tensor> {
    let options = AttentionOptions::default()
        .attn_mask(a.opt(3, "attn_mask"))
        .is_causal(a.flag(KEYWORD, "is_causal", false)?)
        .scale(a.opt_f64(KEYWORD, "scale")?)
        .enable_gqa(a.flag(KEYWORD, "enable_gqa", false)?);
    a.t(0)?.scaled_dot_product_attention(a.t(1)?, a.t(2)?, &options)
}

super::ops! {
    "scaled_dot_product_attention" => |a| attention(a);
}
