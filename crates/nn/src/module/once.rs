//! The default methods of [`Module`], compiled once: there is a copy of each method for every module type,
//! so the methods only pass on where the members are.

use super::{Member, MemberMut, Module, To};
use indexmap::IndexMap;
use rushlight_core::Result;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;

/// Members that live for `'a`, of a module of any type.
pub(super) trait Shared<'a> {
    /// [`Module::members`].
    fn visit(&self, visit: &mut dyn FnMut(&str, Member<'a>));
}

// Of a reference, which has a size where `Self` of a default method need not have one.
impl<'a, M: Module + ?Sized> Shared<'a> for &'a M {
    fn visit(&self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        (**self).members(visit);
    }
}

/// Members to be changed, of a module of any type.
pub(super) trait Changing {
    /// [`Module::members_mut`].
    fn visit(&mut self, visit: &mut dyn FnMut(&str, MemberMut<'_>));
}

impl<M: Module + ?Sized> Changing for &mut M {
    fn visit(&mut self, visit: &mut dyn FnMut(&str, MemberMut<'_>)) {
        (**self).members_mut(&mut |name, member| visit(name, member));
    }
}

/// Visits a module's members and those of its submodules, with dotted names; a submodule before its members.
pub(super) fn walk<'a>(members: &dyn Shared<'a>, prefix: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
    members.visit(&mut |name, member| {
        let full = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match member {
            Member::Parameter(p) => p.location().note(&full),
            Member::Training(t) => t.location().note(&full),
            Member::Module(_) | Member::Buffer(_) => {}
        }
        visit(&full, member);
        if let Member::Module(child) = member {
            walk(&child, &full, visit);
        }
    });
}

pub(super) fn named_children<'a>(members: &dyn Shared<'a>) -> Vec<(String, &'a dyn Module)> {
    let mut children = Vec::new();
    members.visit(&mut |name, member| {
        if let Member::Module(child) = member {
            children.push((name.to_owned(), child));
        }
    });
    children
}

pub(super) fn named_parameters(members: &dyn Shared<'_>) -> Vec<(String, Tensor)> {
    let mut found = Vec::new();
    walk(members, "", &mut |name, member| {
        if let Member::Parameter(p) = member {
            found.push((name.to_owned(), p.tensor().clone()));
        }
    });
    first_of_each(found)
}

pub(super) fn named_buffers(members: &dyn Shared<'_>) -> Vec<(String, Tensor)> {
    let mut found = Vec::new();
    walk(members, "", &mut |name, member| {
        if let Member::Buffer(b) = member {
            found.push((name.to_owned(), b.tensor().clone()));
        }
    });
    first_of_each(found)
}

fn first_of_each(mut found: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    let mut seen = std::collections::HashSet::new();
    found.retain(|(_, t)| seen.insert(t.id()));
    found
}

pub(super) fn without_names<T>(named: Vec<(String, T)>) -> Vec<T> {
    named.into_iter().map(|(_, value)| value).collect()
}

pub(super) fn state_dict(members: &dyn Shared<'_>) -> StateDict {
    let mut state = IndexMap::new();
    walk(members, "", &mut |name, member| {
        let tensor = match member {
            Member::Parameter(p) => p.tensor(),
            Member::Buffer(b) if b.is_persistent() => b.tensor(),
            _ => return,
        };
        state.insert(name.to_owned(), tensor.detach());
    });
    state
}

pub(super) fn set_training(members: &dyn Shared<'_>, training: bool) {
    walk(members, "", &mut |_, member| {
        if let Member::Training(t) = member {
            t.set(training);
        }
    });
}

pub(super) fn zero_grad(parameters: &[Tensor]) {
    parameters.iter().for_each(Tensor::zero_grad);
}

pub(super) fn requires_grad_(parameters: Vec<Tensor>, requires_grad: bool) -> Result<()> {
    for p in parameters {
        p.requires_grad_(requires_grad)?;
    }
    Ok(())
}

pub(super) fn num_parameters(parameters: &[Tensor]) -> usize {
    parameters.iter().map(Tensor::numel).sum()
}

/// Converts all members; `done` maps tensors already converted, so that tied ones stay tied.
pub(super) fn convert(members: &mut dyn Changing, target: To, done: &mut Vec<(Tensor, Tensor)>) -> Result<()> {
    let mut result = Ok(());
    members.visit(&mut |_, member| {
        if result.is_err() {
            return;
        }
        result = match member {
            MemberMut::Parameter(p) => convert_tensor(p.tensor(), target, done).map(|t| p.replace(t)),
            MemberMut::Buffer(b) => convert_tensor(b.tensor(), target, done).map(|t| b.replace(t)),
            MemberMut::Module(mut m) => convert(&mut m, target, done),
        };
    });
    result
}

fn convert_tensor(old: &Tensor, target: To, done: &mut Vec<(Tensor, Tensor)>) -> Result<Tensor> {
    if let Some((_, new)) = done.iter().find(|(before, _)| before.is_same(old)) {
        return Ok(new.clone());
    }
    let converted = |t: &Tensor| -> Result<Tensor> {
        let t = target.device.map_or_else(|| Ok(t.clone()), |device| t.to(device))?;
        target.dtype.filter(|_| t.is_floating_point()).map_or_else(|| Ok(t.clone()), |dtype| t.to_dtype(dtype))
    };
    let mut new = converted(&old.detach())?;
    if new.shares_storage(old) {
        new = old.clone();
    } else {
        new = new.requires_grad_(old.requires_grad())?;
        new.set_grad(old.grad().map(|grad| converted(&grad.detach())).transpose()?)?;
    }
    done.push((old.clone(), new.clone()));
    Ok(new)
}
