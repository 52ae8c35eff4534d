//! From a closed graph to something that runs: engines, their configurations, plans.

use super::graph::{
    Address, Answer, Closed, Descriptor, HeurMode, Kind, Knob, LibraryHandle, NumericalNote, Reference, Refusal,
    answer, attribute,
};
use super::{Cudnn, WORKSPACE};
use crate::driver::{DevicePtr, Handle};
use std::ffi::c_int;

/// What a graph is planned for.
pub enum Target {
    /// The device of a handle of the library.
    Handle(Handle),
    /// A device that need not be there.
    #[cfg(test)]
    Properties(Descriptor),
}

impl Target {
    pub fn of_graph(&self, graph: Descriptor) -> Answer<Descriptor> {
        match self {
            Target::Handle(handle) => graph.set(attribute::OPERATIONGRAPH_HANDLE, &[LibraryHandle(*handle)]),
            #[cfg(test)]
            Target::Properties(_) => Ok(graph),
        }
    }

    /// Heuristics and engines take a handle's device from the graph, plans from their engine.
    fn of_engine(&self, part: Descriptor, _properties: c_int) -> Answer<Descriptor> {
        match self {
            Target::Handle(_) => Ok(part),
            #[cfg(test)]
            Target::Properties(device) => part.set(_properties, &[device.reference()]),
        }
    }
}

/// An engine by its number, and what its knobs are turned to.
pub struct Choice {
    pub engine: i64,
    pub knobs: &'static [(Knob, i64)],
}

/// A graph with an engine that does it. Lives as long as the process.
pub struct Plan {
    pub workspace: usize,
    plan: Descriptor,
    graph: Closed,
    /// What the plan refers to, its configuration last.
    _made_of: Vec<Descriptor>,
}

// SAFETY: nothing of a finished plan changes; executions go one by one, under the library's lock.
unsafe impl Sync for Plan {}

/// A configuration's engine.
fn engine_of(config: &Descriptor) -> Answer<Descriptor> {
    let engine = Descriptor::new(config.api, Kind::Engine)?;
    config.get(attribute::ENGINECFG_ENGINE, &mut [engine.reference()])?;
    Ok(engine)
}

impl Closed {
    fn api(&self) -> &'static Cudnn {
        self.graph.api
    }

    /// The configuration that a choice describes, with all it is made of, itself last.
    fn chosen(&self, target: &Target, choice: &Choice) -> Answer<Vec<Descriptor>> {
        let api = self.api();
        let engine = Descriptor::new(api, Kind::Engine)?
            .set(attribute::ENGINE_OPERATION_GRAPH, &[self.graph.reference()])?
            .set(attribute::ENGINE_GLOBAL_INDEX, &[choice.engine])?;
        let engine = target.of_engine(engine, attribute::ENGINE_DEVICEPROP)?.finalize()?;
        let knobs = choice.knobs.iter().map(|&(knob, value)| {
            Descriptor::new(api, Kind::KnobChoice)?
                .set(attribute::KNOB_CHOICE_KNOB_TYPE, &[knob])?
                .set(attribute::KNOB_CHOICE_KNOB_VALUE, &[value])?
                .finalize()
        });
        let mut parts = knobs.collect::<Answer<Vec<_>>>()?;
        let references: Vec<_> = parts.iter().map(Descriptor::reference).collect();
        let config = Descriptor::new(api, Kind::EngineConfig)?
            .set(attribute::ENGINECFG_ENGINE, &[engine.reference()])?
            .set(attribute::ENGINECFG_KNOB_CHOICES, &references)?
            .finalize()?;
        parts.extend([engine, config]);
        Ok(parts)
    }

    /// Configurations that the library supports and suggests, best first, with what they come from, which is first.
    fn suggested(&self, target: &Target) -> Answer<(Descriptor, Vec<Descriptor>)> {
        let heuristics = Descriptor::new(self.api(), Kind::EngineHeuristics)?
            .set(attribute::ENGINEHEUR_OPERATION_GRAPH, &[self.graph.reference()])?
            .set(attribute::ENGINEHEUR_MODE, &[HeurMode::A])?;
        let heuristics = target.of_engine(heuristics, attribute::ENGINEHEUR_DEVICEPROP)?.finalize()?;
        let count = heuristics.get::<Reference>(attribute::ENGINEHEUR_RESULTS, &mut [])?;
        let mut configs =
            (0..count).map(|_| Descriptor::new(self.api(), Kind::EngineConfig)).collect::<Answer<Vec<_>>>()?;
        // The library fills the descriptors it is given.
        let mut references: Vec<_> = configs.iter().map(Descriptor::reference).collect();
        if count > 0 {
            configs.truncate(heuristics.get(attribute::ENGINEHEUR_RESULTS, &mut references)?);
        }
        Ok((heuristics, configs))
    }

    /// A plan for a configuration and the workspace it needs, unless it would not give the same result every time or asks for too much memory.
    fn finish(&self, config: &Descriptor) -> Answer<(Descriptor, usize)> {
        let engine = engine_of(config)?;
        let mut notes = [NumericalNote(-1); 16];
        let count = engine.get(attribute::ENGINE_NUMERICAL_NOTE, &mut notes)?;
        if notes[..count.min(notes.len())].contains(&NumericalNote::NONDETERMINISTIC) {
            return Err(Refusal { call: "an engine that is not deterministic", status: 0 });
        }
        let plan = Descriptor::new(self.api(), Kind::ExecutionPlan)?
            .set(attribute::EXECUTION_PLAN_ENGINE_CONFIG, &[config.reference()])?
            .finalize()?;
        let workspace = usize::try_from(plan.number(attribute::EXECUTION_PLAN_WORKSPACE_SIZE)?).unwrap_or(usize::MAX);
        if workspace > WORKSPACE {
            return Err(Refusal { call: "too large a workspace", status: 0 });
        }
        Ok((plan, workspace))
    }

    /// The first that works: of the choices, if any, then of what the library suggests.
    pub fn plan(self, target: &Target, choices: &[Choice]) -> Answer<Plan> {
        for choice in choices {
            let Ok(parts) = self.chosen(target, choice) else { continue };
            let Some(config) = parts.last() else { continue };
            if let Ok((plan, workspace)) = self.finish(config) {
                return Ok(Plan { workspace, plan, graph: self, _made_of: parts });
            }
        }
        let (heuristics, configs) = self.suggested(target)?;
        let mut refused = Refusal { call: "no engine", status: 0 };
        for config in configs {
            match self.finish(&config) {
                Ok((plan, workspace)) => {
                    return Ok(Plan { workspace, plan, graph: self, _made_of: vec![heuristics, config] });
                }
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }
}

impl Plan {
    /// The number of its engine.
    #[cfg(test)]
    pub fn engine(&self) -> Answer<i64> {
        let config = self._made_of.last().ok_or(Refusal { call: "a plan of nothing", status: 0 })?;
        engine_of(config)?.number(attribute::ENGINE_GLOBAL_INDEX)
    }

    /// How many addresses an execution takes.
    pub fn operands(&self) -> usize {
        self.graph.operands.len()
    }

    /// What an execution is given: addresses in the order the operands were described, on the device, or of an `f32` here.
    pub fn pack(&self, operands: &[u64], workspace: DevicePtr) -> Answer<Descriptor> {
        let operands: Vec<Address> = operands.iter().map(|&a| Address(a)).collect();
        if operands.len() != self.operands() {
            return Err(Refusal { call: "operands missing", status: 0 });
        }
        Descriptor::new(self.graph.api(), Kind::VariantPack)?
            .set(attribute::VARIANT_PACK_UNIQUE_IDS, &self.graph.operands)?
            .set(attribute::VARIANT_PACK_DATA_POINTERS, &operands)?
            .set(attribute::VARIANT_PACK_WORKSPACE, &[Address(workspace)])?
            .finalize()
    }

    /// Starts it on the handle's stream.
    ///
    /// # Safety
    /// Addresses are of what the graph says, and stay so until the device is past it; the handle is the caller's alone meanwhile.
    pub unsafe fn execute(&self, handle: Handle, operands: &[u64], workspace: DevicePtr) -> Answer<()> {
        let pack = self.pack(operands, workspace)?;
        let (Reference(plan), Reference(given)) = (self.plan.reference(), pack.reference());
        // SAFETY: by the caller.
        answer("cudnnBackendExecute", unsafe { (self.graph.api().execute)(handle, plan, given) })
    }
}
