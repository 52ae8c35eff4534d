//! A run that follows a file of `rushlight plan --write`.

use super::Trainer;
use super::options::Options;
use crate::{Batch, Precision};
use rushlight_core::{Error, Result};
use rushlight_data::DataLoader;
use rushlight_dist::plan::{self, Configuration};

/// Sets what the plan says, the builder's or the launcher's, and refuses what is set beside it.
pub(super) fn follow(options: &mut Options) -> Result<()> {
    if options.plan.is_none() {
        options.plan = Configuration::of_launcher()?;
    }
    let Some(plan) = &options.plan else { return Ok(()) };
    let both = |option: &str, value: &str, said: &str| {
        Err(Error::value(format!("Trainer: {option} is {value}, and the plan says {said}: leave one of them out")))
    };
    let strategy = if plan.zero == 0 { "ddp".to_owned() } else { format!("zero{}", plan.zero) };
    if options.strategy != "auto" {
        return both("the strategy", &options.strategy, &strategy);
    }
    let precision = match plan.precision {
        plan::Precision::Bf16 => Precision::Bf16Mixed,
        plan::Precision::F32 => Precision::F32,
    };
    if options.precision != Precision::default() && options.precision != precision {
        return both("the precision", &options.precision.to_string(), &precision.to_string());
    }
    let accumulate = plan.microbatches as u64;
    if options.accumulate_grad_batches != 1 && options.accumulate_grad_batches != accumulate {
        let value = options.accumulate_grad_batches.to_string();
        return both("accumulate_grad_batches", &value, &accumulate.to_string());
    }
    (options.strategy, options.precision, options.accumulate_grad_batches) = (strategy, precision, accumulate);
    Ok(())
}

impl Trainer {
    /// Gives the loader the plan's batches until the run ends, and says what it is.
    pub(super) fn follow_plan<B: Batch>(&mut self, loader: &mut DataLoader<B>) -> Result<()> {
        let Some(plan) = &self.options.plan else { return Ok(()) };
        let Some(own) = loader.batch_size() else {
            return Err(Error::value(format!(
                "Trainer: the plan has batches of {} samples and the loader's come from a sampler of its own; build it with \
                 batch_size",
                plan.microbatch
            )));
        };
        let mut text = format!(
            "plan: {} ranks, {}{}, {}, {} batches of {} samples on each for a step",
            plan.devices,
            self.options.strategy,
            if plan.offload { " with offload" } else { "" },
            self.options.precision,
            plan.microbatches,
            plan.microbatch
        );
        if plan.recompute {
            text += "; its memory is that of a model that computes its blocks again (autograd::checkpoint)";
        }
        if own != plan.microbatch {
            loader.set_batch_size(plan.microbatch)?;
            self.own_batch_size = Some(own);
        }
        if self.ranks.rank() == 0 {
            self.progress.print_line(&text, true);
        }
        Ok(())
    }
}
