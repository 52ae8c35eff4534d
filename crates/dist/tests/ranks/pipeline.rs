//! Pipelines against one process that has the whole model and the whole batch.

use crate::support::{Ranks, device};
use rushlight_core::{DType, Result, rng::manual_seed};
use rushlight_dist::World;
use rushlight_dist::pipeline::{Pipeline, PipelineStage, Schedule};
use rushlight_nn::{Forward, Linear, Module};
use rushlight_tensor::{Tensor, autograd::no_grad};

const ROWS: usize = 48;

/// A layer for each stage, with the same values on every rank.
fn layers(stages: usize) -> Result<Vec<Linear>> {
    manual_seed(3);
    (0..stages).map(|_| Linear::new(6, 6)?.to((DType::F32, device()))).collect()
}

fn apply(layer: &Linear, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let y = layer.forward(&inputs[0])?.tanh()?;
    // A second output, passed on unchanged: a mask that needs no gradient.
    Ok(vec![y.mul(&inputs[1])?, inputs[1].clone()])
}

fn batch(step: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let wave = |scale: f32, width: usize| -> Result<Tensor> {
        let values: Vec<f32> = (0..ROWS * width).map(|i| ((step * 1000 + i) as f32 * scale).sin()).collect();
        Tensor::from_slice(&values, [ROWS, width])?.to(device())
    };
    Ok((wave(0.37, 6)?, wave(0.11, 6)?, wave(0.23, 1)?.gt(-0.5)?.to(DType::F32)?))
}

fn update(layer: &Linear) -> Result<()> {
    no_grad(|| {
        for p in layer.parameters() {
            if let Some(g) = p.grad() {
                p.sub_(&g.mul(0.2)?)?;
            }
            p.zero_grad();
        }
        Ok(())
    })
}

fn alone(stages: usize, steps: usize) -> Result<(Vec<f32>, Vec<Linear>)> {
    let (layers, mut losses) = (layers(stages)?, Vec::new());
    for step in 0..steps {
        let (x, y, mask) = batch(step)?;
        let mut values = vec![x, mask];
        for layer in &layers {
            values = apply(layer, &values)?;
        }
        let loss = values[0].sub(&y)?.pow(2)?.mean(..)?;
        loss.backward()?;
        losses.push(loss.item::<f32>()?);
        layers.iter().try_for_each(update)?;
    }
    Ok((losses, layers))
}

fn piped(world: &World, schedule: Schedule) -> Result<()> {
    let steps = 4;
    let (name, stages, count) = (schedule.name().to_string(), schedule.stages(), schedule.microbatches());
    let (losses, expected) = alone(stages, steps)?;
    let own: Vec<usize> = (0..stages).filter(|&s| schedule.placement()[s] == world.rank()).collect();
    let layers = &layers(stages)?;
    let parts = own.iter().map(|&s| PipelineStage::new(s, move |x: &[Tensor]| apply(&layers[s], x))).collect();
    let pipeline = Pipeline::new(world.group().clone(), schedule, parts)?;
    for (step, expected) in losses.iter().enumerate() {
        let (x, y, mask) = batch(step)?;
        let rows = ROWS / count;
        let loss = |out: &[Tensor], mb: usize| {
            let y = y.narrow(0, (mb * rows) as isize, rows)?;
            out[0].sub(&y)?.pow(2)?.mean(..)
        };
        let found = pipeline.step(&[x, mask], &loss)?;
        if own.contains(&(stages - 1)) {
            assert_eq!(found.len(), count);
            let mean = found.iter().map(|l| l.item::<f32>().unwrap()).sum::<f32>() / count as f32;
            assert!((mean - expected).abs() < 1e-5, "{name}, step {step}: {mean} {expected}");
        } else {
            assert!(found.is_empty());
        }
        own.iter().try_for_each(|&s| update(&layers[s]))?;
    }
    for &s in &own {
        for (p, q) in layers[s].parameters().iter().zip(expected[s].parameters()) {
            let gap = p.sub(&q)?.abs()?.max(..)?.item::<f32>()?;
            assert!(gap < 1e-5, "{name}, stage {s}: {gap}");
        }
    }
    Ok(())
}

fn all_schedules(world: World) {
    let p = world.size();
    for schedule in [
        Schedule::gpipe(p, 4),
        Schedule::one_f_one_b(p, 6),
        Schedule::interleaved(p, 2, 2 * p),
        Schedule::looped_bfs(p, 3, 4),
        Schedule::zero_bubble(p, 1, 6),
        Schedule::zero_bubble(p, 2, 2 * p),
        Schedule::zero_bubble_v(p, 8),
    ] {
        piped(&world, schedule.unwrap()).unwrap();
    }
    let wrong = Schedule::gpipe(p + 1, 2).unwrap();
    let message = Pipeline::new(world.group().clone(), wrong, Vec::new()).err().unwrap().to_string();
    assert!(message.contains("the group has"), "{message}");
}

#[test]
fn two_ranks_equal_one_process() {
    Ranks::new("pipeline::two_ranks_equal_one_process", 2).run(all_schedules);
}

#[test]
fn four_ranks_equal_one_process() {
    Ranks::new("pipeline::four_ranks_equal_one_process", 4).run(all_schedules);
}

#[test]
fn eight_ranks_equal_one_process() {
    Ranks::new("pipeline::eight_ranks_equal_one_process", 8).run(all_schedules);
}
