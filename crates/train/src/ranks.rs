//! The processes of a run: one, or those a launcher started.

use crate::checkpoint::CheckpointsBuilder;
use crate::step::ReduceFx;
use rushlight_core::{Device, Error, Result};
use rushlight_nn::{Member, MemberMut, Module, Parameter};
use rushlight_tensor::Tensor;

#[cfg(target_os = "linux")]
use rushlight_dist::{DistributedDataParallel, NoSync, ProcessGroup, ReduceOp, World};
#[cfg(target_os = "linux")]
use std::sync::Arc;

/// This process's position among the processes of its run.
#[derive(Default)]
pub struct Ranks {
    #[cfg(target_os = "linux")]
    world: Option<World>,
}

impl Ranks {
    /// A run of one process.
    pub fn alone() -> Self {
        Self::default()
    }

    /// Joins the other processes as the launcher specifies.
    #[cfg(target_os = "linux")]
    pub(crate) fn launched() -> Result<Self> {
        Ok(Self { world: Some(rushlight_dist::init()?) })
    }

    /// Joins the other processes as the launcher specifies.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn launched() -> Result<Self> {
        Ok(Self::alone())
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            return world.rank();
        }
        0
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            return world.size();
        }
        1
    }

    /// The accelerator of this process, or the CPU.
    pub(crate) fn device(&self) -> Device {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            return world.device();
        }
        rushlight_engines::accelerator().map_or(Device::Cpu, |engine| engine.device(0))
    }

    /// Combines numbers of all processes, in place.
    pub(crate) fn reduce(&self, values: &mut [f64], fx: ReduceFx) -> Result<()> {
        if values.is_empty() || self.size() == 1 {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            let op = match fx {
                ReduceFx::Mean | ReduceFx::Sum => ReduceOp::Sum,
                ReduceFx::Min => ReduceOp::Min,
                ReduceFx::Max => ReduceOp::Max,
            };
            let tensor = Tensor::from_slice(values, [values.len()])?;
            world.all_reduce(&tensor, op)?;
            values.copy_from_slice(&tensor.to_vec::<f64>()?);
        }
        let _ = fx;
        Ok(())
    }

    /// The bytes of every process, by rank.
    pub(crate) fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            return rushlight_dist::Objects::all_gather_object(&**world.group(), bytes);
        }
        Ok(vec![bytes.to_vec()])
    }

    /// Logical or over all processes.
    pub(crate) fn any(&self, yes: bool) -> Result<bool> {
        let mut values = [f64::from(u8::from(yes))];
        self.reduce(&mut values, ReduceFx::Max)?;
        Ok(values[0] > 0.0)
    }

    /// Broadcasts the first process's number.
    pub(crate) fn first(&self, number: u64) -> Result<u64> {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            let tensor = Tensor::from_slice(&[number as i64], [1])?;
            world.broadcast(&tensor, 0)?;
            return Ok(tensor.item::<i64>()? as u64);
        }
        Ok(number)
    }

    /// Watches for the signals of schedulers that take a job's nodes (`scheduler`) and for Ctrl-C (`interrupt`).
    #[cfg(target_os = "linux")]
    pub(crate) fn watch(&self, scheduler: bool, interrupt: bool) -> Result<Watch> {
        use crate::Preemption;
        let world = self.world.as_ref();
        let watch = match world.filter(|_| scheduler) {
            Some(world) => Preemption::watch(world)?,
            None if interrupt => Preemption::without_signals(world),
            None => return Ok(Watch::default()),
        };
        Ok(Watch { preemption: Some(if interrupt { watch.or_interrupt()? } else { watch }) })
    }

    /// There are no signals to watch for.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn watch(&self, _scheduler: bool, _interrupt: bool) -> Result<Watch> {
        Ok(Watch::default())
    }

    /// Makes all processes save checkpoints together.
    pub(crate) fn share(&self, builder: CheckpointsBuilder) -> CheckpointsBuilder {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            return builder.world(world);
        }
        builder
    }

    /// Synchronises a model across processes and averages its gradients from now on.
    pub(crate) fn parallel<M: Module>(&self, model: &M, find_unused: bool) -> Result<Parallel> {
        #[cfg(target_os = "linux")]
        if let Some(world) = &self.world {
            if world.size() == 1 {
                return Ok(Parallel::default());
            }
            let shadow = Shadow::of(model);
            let group: Arc<dyn ProcessGroup> = world.group().clone();
            let ddp = DistributedDataParallel::new(shadow, group).find_unused_parameters(find_unused).build()?;
            return Ok(Parallel { ddp: Some(ddp) });
        }
        let _ = (model, find_unused);
        Ok(Parallel::default())
    }
}

/// Watches for signals that end a run.
#[derive(Default)]
pub(crate) struct Watch {
    #[cfg(target_os = "linux")]
    preemption: Option<crate::Preemption>,
}

impl Watch {
    /// Whether all processes must save and end; checked at the end of each step.
    pub(crate) fn agreed(&mut self) -> Result<bool> {
        #[cfg(target_os = "linux")]
        if let Some(preemption) = &mut self.preemption {
            return preemption.agreed();
        }
        Ok(false)
    }

    /// Whether Ctrl-C ended the run.
    pub(crate) fn is_interrupted(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.preemption.as_ref().is_some_and(crate::Preemption::is_interrupt);
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// The exit code that requests another job.
    pub(crate) fn requeue(&self) -> Option<i32> {
        #[cfg(target_os = "linux")]
        return self.preemption.as_ref().map(crate::Preemption::requeue);
        #[cfg(not(target_os = "linux"))]
        None
    }
}

/// Averages gradients over processes while it lives.
#[derive(Default)]
pub(crate) struct Parallel {
    #[cfg(target_os = "linux")]
    ddp: Option<DistributedDataParallel<Shadow>>,
}

/// While it lives, gradients stay on their rank.
pub(crate) struct Local {
    #[cfg(target_os = "linux")]
    _guard: Option<NoSync>,
}

impl Parallel {
    /// A forward pass whose gradients will be averaged.
    pub(crate) fn call(&self, forward: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        #[cfg(target_os = "linux")]
        if let Some(ddp) = &self.ddp {
            return ddp.call(|_| forward());
        }
        forward()
    }

    /// Skips the gradients' all-reduce until the guard is dropped.
    pub(crate) fn local(&self) -> Local {
        Local {
            #[cfg(target_os = "linux")]
            _guard: self.ddp.as_ref().map(DistributedDataParallel::no_sync),
        }
    }
}

/// A model's parameters and buffers as a separate module: the model itself stays with its user.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
struct Shadow {
    parameters: Vec<(String, Parameter)>,
    buffers: Vec<(String, rushlight_nn::Buffer)>,
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
impl Shadow {
    fn of<M: Module>(model: &M) -> Self {
        let mut shadow = Self { parameters: Vec::new(), buffers: Vec::new() };
        shadow.collect(model, "");
        shadow
    }

    fn collect(&mut self, module: &dyn Module, prefix: &str) {
        module.members(&mut |name, member| {
            let full = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            match member {
                Member::Parameter(p) => self.parameters.push((full, p.tie())),
                Member::Buffer(b) => self.buffers.push((full, b.clone())),
                Member::Module(m) => self.collect(m, &full),
                Member::Training(_) => {}
            }
        });
    }
}

impl Module for Shadow {
    fn type_name(&self) -> &'static str {
        "Shadow"
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        self.parameters.iter().for_each(|(name, p)| visit(name, Member::Parameter(p)));
        self.buffers.iter().for_each(|(name, b)| visit(name, Member::Buffer(b)));
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        self.parameters.iter_mut().for_each(|(name, p)| visit(name, MemberMut::Parameter(p)));
        self.buffers.iter_mut().for_each(|(name, b)| visit(name, MemberMut::Buffer(b)));
    }
}

/// Rejects an unsupported strategy and names the supported ones.
pub(crate) fn check_strategy(name: &str) -> Result<()> {
    match name {
        "auto" | "ddp" | "single_device" => Ok(()),
        "zero1" | "zero2" | "zero3" | "fsdp" | "deepspeed" | "deepspeed_stage_1" | "deepspeed_stage_2"
        | "deepspeed_stage_3" => Err(Error::unsupported(format!(
            "Trainer: strategy '{name}' (sharded optimizer state, gradients or parameters) is not supported yet; use 'ddp'"
        ))),
        other => {
            Err(Error::value(format!("Trainer: unknown strategy '{other}'; known are auto, ddp and single_device")))
        }
    }
}
