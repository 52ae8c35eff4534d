//! Loading a state dict: check everything, then copy.

use super::Member;
use super::once::{Shared, walk};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::StateDict;
use std::collections::HashSet;

/// Names that [`Module::load_state_dict_partial`](super::Module::load_state_dict_partial) skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Names the module has and the state dict has not.
    pub missing_keys: Vec<String>,
    /// Names the state dict has and the module has not.
    pub unexpected_keys: Vec<String>,
}

pub(super) fn load(members: &dyn Shared<'_>, kind: &str, state: &StateDict, strict: bool) -> Result<LoadReport> {
    let (mut report, mut copies, mut wrong) = (LoadReport::default(), Vec::<(Tensor, &Tensor)>::new(), Vec::new());
    let mut known = HashSet::new();
    walk(members, "", &mut |name, member| {
        let own = match member {
            Member::Parameter(p) => p.tensor(),
            Member::Buffer(b) if b.is_persistent() => b.tensor(),
            _ => return,
        };
        known.insert(name.to_owned());
        match state.get(name) {
            None => report.missing_keys.push(name.to_owned()),
            Some(new) if new.shape() != own.shape() => wrong.push(format!(
                "size mismatch for {name}: the state dict has shape {:?}, the module {:?}",
                new.shape(),
                own.shape()
            )),
            Some(new) => copies.push((own.detach(), new)),
        }
    });
    report.unexpected_keys = state.keys().filter(|name| !known.contains(*name)).cloned().collect();
    if strict {
        if !report.unexpected_keys.is_empty() {
            wrong.push(format!("unexpected keys: {}", listed(&report.unexpected_keys)));
        }
        if !report.missing_keys.is_empty() {
            wrong.push(format!("missing keys: {}", listed(&report.missing_keys)));
        }
    }
    if !wrong.is_empty() {
        return Err(Error::value(format!("load_state_dict for {kind}: {}", wrong.join("; "))));
    }
    no_grad(|| copies.iter().try_for_each(|(own, new)| own.copy_(new).map(|_| ())))?;
    Ok(report)
}

/// Names in quotes, the first twenty of many.
fn listed(names: &[String]) -> String {
    let mut text: Vec<String> = names.iter().take(20).map(|n| format!("\"{n}\"")).collect();
    if names.len() > 20 {
        text.push(format!("and {} more", names.len() - 20));
    }
    text.join(", ")
}
