//! The processes of a run: one, or those a launcher started.

use crate::checkpoint::CheckpointsBuilder;
use crate::optimizers::Optimizers;
#[cfg(all(target_os = "linux", feature = "dist"))]
use crate::sharding::Sharding;
use crate::step::ReduceFx;
use crate::trainer::Options;
use rushlight_core::{Device, Error, Result};
use rushlight_nn::{Member, MemberMut, Module, Parameter};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{StateDict, Value};

#[cfg(all(target_os = "linux", feature = "dist"))]
use rushlight_dist::{DistributedDataParallel, NoSync, ProcessGroup, ReduceOp, World};
#[cfg(all(target_os = "linux", feature = "dist"))]
use std::sync::Arc;

/// This process's position among the processes of its run.
#[derive(Default)]
pub struct Ranks {
    #[cfg(all(target_os = "linux", feature = "dist"))]
    world: Option<World>,
}

impl Ranks {
    /// A run of one process.
    pub fn alone() -> Self {
        Self::default()
    }

    /// Joins the other processes as the launcher specifies.
    #[cfg(all(target_os = "linux", feature = "dist"))]
    pub(crate) fn launched() -> Result<Self> {
        Ok(Self { world: Some(rushlight_dist::init()?) })
    }

    /// Joins the other processes as the launcher specifies.
    #[cfg(not(all(target_os = "linux", feature = "dist")))]
    pub(crate) fn launched() -> Result<Self> {
        Ok(Self::alone())
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(world) = &self.world {
            return world.rank();
        }
        0
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(world) = &self.world {
            return world.size();
        }
        1
    }

    /// The accelerator of this process, or the CPU.
    pub(crate) fn device(&self) -> Device {
        #[cfg(all(target_os = "linux", feature = "dist"))]
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
        #[cfg(all(target_os = "linux", feature = "dist"))]
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
        #[cfg(all(target_os = "linux", feature = "dist"))]
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
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(world) = &self.world {
            let tensor = Tensor::from_slice(&[number as i64], [1])?;
            world.broadcast(&tensor, 0)?;
            return Ok(tensor.item::<i64>()? as u64);
        }
        Ok(number)
    }

    /// Watches for the signals of schedulers that take a job's nodes (`scheduler`) and for Ctrl-C (`interrupt`).
    #[cfg(all(target_os = "linux", feature = "dist"))]
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
    #[cfg(not(all(target_os = "linux", feature = "dist")))]
    pub(crate) fn watch(&self, _scheduler: bool, _interrupt: bool) -> Result<Watch> {
        Ok(Watch::default())
    }

    /// Makes all processes save checkpoints together.
    pub(crate) fn share(&self, builder: CheckpointsBuilder) -> CheckpointsBuilder {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(world) = &self.world {
            return builder.world(world);
        }
        builder
    }

    /// Synchronises a model across processes and averages its gradients from now on. With a strategy that shards, its
    /// parameters become shards.
    pub(crate) fn parallel<M: Module>(&self, model: &mut M, options: &Options) -> Result<Parallel> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(world) = &self.world {
            let offload = options.offload();
            if world.size() == 1 && !offload {
                return Ok(Parallel::default());
            }
            if let Some(stage) = zero_stage(&options.strategy) {
                let stage = rushlight_dist::ZeroStage::of(stage)?;
                return Ok(Parallel { ddp: None, sharding: Some(Sharding::new(model, world, stage, offload)?) });
            }
            let shadow = Shadow::of(model);
            let group: Arc<dyn ProcessGroup> = world.group().clone();
            let ddp = DistributedDataParallel::builder(shadow, group)
                .find_unused_parameters(options.find_unused_parameters)
                .build()?;
            return Ok(Parallel { ddp: Some(ddp), sharding: None });
        }
        if options.offload() {
            return Err(Error::unsupported(
                "Trainer: shards in the host's memory need a process group; start the program by `rushlight run`",
            ));
        }
        let _ = model;
        Ok(Parallel::default())
    }
}

/// Watches for signals that end a run.
#[derive(Default)]
pub(crate) struct Watch {
    #[cfg(all(target_os = "linux", feature = "dist"))]
    preemption: Option<crate::Preemption>,
}

impl Watch {
    /// Whether all processes must save and end; checked at the end of each step.
    pub(crate) fn agreed(&mut self) -> Result<bool> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(preemption) = &mut self.preemption {
            return preemption.agreed();
        }
        Ok(false)
    }

    /// Whether Ctrl-C ended the run.
    pub(crate) fn is_interrupted(&self) -> bool {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        return self.preemption.as_ref().is_some_and(crate::Preemption::is_interrupt);
        #[cfg(not(all(target_os = "linux", feature = "dist")))]
        false
    }

    /// The exit code that requests another job.
    pub(crate) fn requeue(&self) -> Option<i32> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        return self.preemption.as_ref().map(crate::Preemption::requeue);
        #[cfg(not(all(target_os = "linux", feature = "dist")))]
        None
    }
}

/// Averages gradients over processes while it lives; shards parameters if the strategy says so.
#[derive(Default)]
pub(crate) struct Parallel {
    #[cfg(all(target_os = "linux", feature = "dist"))]
    ddp: Option<DistributedDataParallel<Shadow>>,
    #[cfg(all(target_os = "linux", feature = "dist"))]
    sharding: Option<Sharding>,
}

/// While it lives, gradients stay on their rank.
pub(crate) struct Local<'a> {
    #[cfg(all(target_os = "linux", feature = "dist"))]
    _guard: Option<NoSync>,
    #[cfg(all(target_os = "linux", feature = "dist"))]
    sharding: Option<&'a Sharding>,
    _parallel: std::marker::PhantomData<&'a Parallel>,
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = self.sharding {
            sharding.parameters().group().set_sync(true);
        }
    }
}

impl Parallel {
    /// Whether parameters are sharded.
    pub(crate) fn is_sharded(&self) -> bool {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        return self.sharding.is_some();
        #[cfg(not(all(target_os = "linux", feature = "dist")))]
        false
    }

    /// A forward pass whose gradients will be averaged.
    pub(crate) fn call<M: Module>(&self, model: &mut M, forward: impl FnOnce(&M) -> Result<Tensor>) -> Result<Tensor> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            return sharding.parameters().call(model, forward);
        }
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(ddp) = &self.ddp {
            return ddp.call(|_| forward(model));
        }
        forward(model)
    }

    /// Skips the gradients' reduction until the guard is dropped.
    pub(crate) fn local(&self) -> Local<'_> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            sharding.parameters().group().set_sync(false);
        }
        Local {
            #[cfg(all(target_os = "linux", feature = "dist"))]
            _guard: self.ddp.as_ref().map(DistributedDataParallel::no_sync),
            #[cfg(all(target_os = "linux", feature = "dist"))]
            sharding: self.sharding.as_ref(),
            _parallel: std::marker::PhantomData,
        }
    }

    /// Runs something with the whole parameters in the model; changes of them are kept.
    pub(crate) fn whole<M: Module, T>(&self, model: &mut M, body: impl FnOnce(&mut M) -> Result<T>) -> Result<T> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            sharding.parameters().open(model)?;
            let result = body(model);
            sharding.parameters().close(model)?;
            return result;
        }
        body(model)
    }

    /// Clips gradients by their norm over the whole model.
    pub(crate) fn clip_norm(&self, params: Vec<Tensor>, max_norm: f64) -> Result<()> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            return sharding.clip(&params, max_norm).map(drop);
        }
        rushlight_tensor::clip_grad_norm_(&params, max_norm).map(drop)
    }

    /// Before a step that gradients which overflowed skip: all processes skip it.
    pub(crate) fn share_overflow(&self, params: &[Tensor]) -> Result<()> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            return sharding.share_overflow(params);
        }
        let _ = params;
        Ok(())
    }

    /// The model's state with whole parameters.
    pub(crate) fn state_dict(&self, model: &dyn Module) -> Result<StateDict> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            return sharding.state_dict(model);
        }
        Ok(model.state_dict())
    }

    /// The states of optimizers with whole tensors.
    pub(crate) fn assembled(&self, states: Value, optimizers: &Optimizers, ranks: &Ranks) -> Result<Value> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            return sharding.assembled(&states, optimizers, ranks);
        }
        let _ = (optimizers, ranks);
        Ok(states)
    }

    /// This process's part of the states of optimizers.
    pub(crate) fn cut(&self, states: &Value, optimizers: &Optimizers) -> Result<Value> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = &self.sharding {
            return sharding.cut(states, optimizers);
        }
        let _ = optimizers;
        Ok(states.clone())
    }

    /// Gives the model its whole parameters for good.
    pub(crate) fn finish<M: Module>(&mut self, model: &mut M) -> Result<()> {
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(sharding) = self.sharding.take() {
            return sharding.into_parameters().restore(model);
        }
        let _ = model;
        Ok(())
    }
}

/// A model's parameters and buffers as a separate module: the model itself stays with its user.
#[cfg_attr(not(all(target_os = "linux", feature = "dist")), allow(dead_code))]
struct Shadow {
    parameters: Vec<(String, Parameter)>,
    buffers: Vec<(String, rushlight_nn::Buffer)>,
}

#[cfg_attr(not(all(target_os = "linux", feature = "dist")), allow(dead_code))]
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

/// ZeRO's stage of a strategy; none if it does not shard.
pub(crate) fn zero_stage(strategy: &str) -> Option<usize> {
    match strategy {
        "zero1" | "deepspeed_stage_1" => Some(1),
        "zero2" | "deepspeed" | "deepspeed_stage_2" => Some(2),
        "zero3" | "fsdp" | "deepspeed_stage_3" => Some(3),
        _ => None,
    }
}

/// Rejects an unknown strategy and names the known ones.
pub(crate) fn check_strategy(name: &str) -> Result<()> {
    match name {
        "auto" | "ddp" | "single_device" => Ok(()),
        name if zero_stage(name).is_some() => match cfg!(all(target_os = "linux", feature = "dist")) {
            true => Ok(()),
            false => Err(Error::unsupported(format!("Trainer: strategy '{name}' needs Linux; use 'ddp'"))),
        },
        other => Err(Error::value(format!(
            "Trainer: unknown strategy '{other}'; known are auto, ddp, single_device, zero1, zero2, zero3, fsdp, deepspeed \
             and deepspeed_stage_1 to 3"
        ))),
    }
}
