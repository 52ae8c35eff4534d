//! A step of fused formulas, whoever owns the parameters and their state: this library's groups or Python's.

use crate::group::{Factors, Fused, Scalars};
use rushlight_core::Result;
use rushlight_core::smallvec::SmallVec;
use rushlight_tensor::capture::{self, ReplayNumbers};
use rushlight_tensor::foreach::{self, Update};
use rushlight_tensor::{Arg, Tensor};

/// Parameters of a group with the same factors in a step.
pub struct FactorSet {
    /// The group's place.
    pub group: usize,
    /// Their numbers before the step.
    pub before: Scalars,
    /// Whether a state tensor was new.
    pub first: bool,
    after: Scalars,
    factors: Factors,
}

/// The factors of one step, set by set.
#[derive(Default)]
pub struct FactorSets(SmallVec<[FactorSet; 2]>);

impl FactorSets {
    /// Counts a step of a parameter in `scalars` and returns the number of its set.
    pub fn advance<A: Fused>(&mut self, group: usize, options: &A, scalars: &mut Scalars, first: bool) -> usize {
        // Most parameters have taken as many steps as the one before: the powers are computed once.
        match self.0.last().filter(|set| set.group == group && set.before == *scalars && set.first == first) {
            Some(set) => *scalars = set.after,
            None => {
                let before = *scalars;
                let factors = options.advance(scalars, first);
                self.0.push(FactorSet { group, before, first, after: *scalars, factors });
            }
        }
        self.0.len() - 1
    }

    /// The sets, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, FactorSet> {
        self.0.iter()
    }

    /// One call of the engine for all parameters, or for those of each device. In a captured step, `recorded` makes
    /// what counts its replays.
    pub fn update<'a>(
        &self,
        members: impl Iterator<Item = Member<'a>>,
        grad_scale: Arg,
        found_inf: Option<&Tensor>,
        recorded: Option<impl FnOnce() -> Box<dyn ReplayNumbers>>,
    ) -> Result<()> {
        let (mut updates, mut places) = (SmallVec::<[Update; 8]>::new(), SmallVec::<[usize; 8]>::new());
        for Member { param, grad, state, set } in members {
            let Factors { maximize, weight_decay, shrink, rule } = self.0[set].factors;
            updates.push(Update { param, grad, state, maximize, weight_decay, shrink, rule });
            places.push(set);
        }
        let device = updates.first().map(|u| u.param.device());
        if found_inf.is_none()
            && capture::recording_id().is_none()
            && updates.iter().any(|u| Some(u.param.device()) != device)
        {
            // A model on several devices.
            let mut rest = updates.to_vec();
            while let Some(device) = rest.first().map(|u| u.param.device()) {
                let (here, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|u| u.param.device() == device);
                foreach::update(&here, grad_scale)?;
                rest = others;
            }
            return Ok(());
        }
        match recorded {
            Some(recorded) => foreach::update_renewed(&updates, &places, grad_scale, found_inf, recorded),
            None => foreach::update(&updates, grad_scale),
        }
    }
}

/// A parameter in a step.
pub struct Member<'a> {
    /// The parameter.
    pub param: &'a Tensor,
    /// Its gradient.
    pub grad: &'a Tensor,
    /// The tensors kept for it.
    pub state: [Option<&'a Tensor>; 3],
    /// The number of its set of factors.
    pub set: usize,
}
