//! Orders.

use rushlight_core::Generator;
use rushlight_data::sampler::*;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Stateful;

fn order(sampler: &impl Sampler<Item = usize>, epoch: u64) -> Vec<usize> {
    let indices: Vec<usize> = sampler.iter(epoch).unwrap().collect();
    assert_eq!(indices.len(), sampler.len());
    indices
}

#[test]
fn random_order() {
    let sampler = RandomSampler::new(50).seed(9);
    assert_eq!(order(&sampler, 3), order(&sampler.clone(), 3));
    assert_ne!(order(&sampler, 3), order(&sampler, 4));
    let permutation = Tensor::randperm_from(&Generator::new(9 + 3), 50).unwrap().to_vec::<i64>().unwrap();
    assert_eq!(order(&sampler, 3), permutation.iter().map(|&i| i as usize).collect::<Vec<_>>());
    assert_eq!(order(&sampler.clone().num_samples(5), 3)[..], order(&sampler, 3)[..5]);
    // More than the dataset has: whole permutations, then part of one.
    let many = order(&RandomSampler::new(4).seed(1).num_samples(10), 0);
    for round in many.chunks_exact(4) {
        let mut round = round.to_vec();
        round.sort();
        assert_eq!(round, [0, 1, 2, 3]);
    }
    let drawn = order(&RandomSampler::new(4).seed(1).replacement(true).num_samples(1000), 0);
    assert!((0..4).all(|i| (150..350).contains(&drawn.iter().filter(|&&d| d == i).count())));
    assert!(RandomSampler::new(0).num_samples(1).iter(0).is_err());
    assert!(order(&RandomSampler::new(0), 0).is_empty());
    let g = Generator::new(5);
    assert_ne!(RandomSampler::new(9).generator(&g).order_seed(), RandomSampler::new(9).generator(&g).order_seed());
}

#[test]
fn subset_order() {
    let mut indices = order(&SubsetRandomSampler::new(vec![7, 9, 11]).seed(2), 0);
    indices.sort();
    assert_eq!(indices, [7, 9, 11]);
}

#[test]
fn weighted_order() {
    let weights = vec![0.0, 1.0, 3.0, 0.0];
    let sampler = WeightedRandomSampler::new(weights.clone(), 4000, true).unwrap().seed(1);
    let drawn = order(&sampler, 0);
    let count = |i| drawn.iter().filter(|&&d| d == i).count();
    assert_eq!((count(0), count(3)), (0, 0));
    assert!((850..1150).contains(&count(1)), "{}", count(1));
    let without = WeightedRandomSampler::new(weights.clone(), 2, false).unwrap();
    let first_is_2 = (0..1000).filter(|&epoch| order(&without.clone().seed(3), epoch)[0] == 2).count();
    assert!((690..810).contains(&first_is_2), "{first_is_2}");
    for (bad, n, replacement) in [
        (vec![], 1, true),
        (vec![0.0], 1, true),
        (vec![-1.0, 2.0], 1, true),
        (vec![f64::NAN], 1, true),
        (vec![f64::MAX, f64::MAX], 1, true),
        (vec![1.0], 0, true),
        (weights, 3, false),
    ] {
        assert!(WeightedRandomSampler::new(bad.clone(), n, replacement).is_err(), "{bad:?}");
    }
}

#[test]
fn batches() {
    let batches = |drop_last| {
        let sampler = BatchSampler::new(SequentialSampler::new(5), 2, drop_last).unwrap();
        let batches: Vec<Vec<usize>> = sampler.iter(0).unwrap().collect();
        assert_eq!(sampler.len(), batches.len());
        batches
    };
    assert_eq!(batches(false), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(batches(true), [vec![0, 1], vec![2, 3]]);
    assert!(BatchSampler::new(SequentialSampler::new(5), 0, false).is_err());
}

#[test]
fn shares_are_one_permutation() {
    let rank = |rank| order(&DistributedSampler::new(10, 3, rank).unwrap().seed(4), 2);
    let whole = permutation(10, 4 + 2);
    let shares = [rank(0), rank(1), rank(2)];
    let interleaved: Vec<usize> = (0..12).map(|i| shares[i % 3][i / 3]).collect();
    assert_eq!(interleaved[..10], whole[..]);
    assert_eq!(interleaved[10..], whole[..2]);
    assert!(DistributedSampler::new(10, 3, 3).is_err() && DistributedSampler::new(10, 0, 0).is_err());
    assert!(order(&DistributedSampler::new(0, 2, 1).unwrap(), 0).is_empty());
}

/// Printed by PyTorch: `torch.randperm` and `DistributedSampler(range(11), 3, rank, seed=5, drop_last=…)` of epoch 2.
#[test]
fn the_order_is_pytorchs() {
    assert_eq!(permutation(10, 4), [0, 4, 9, 6, 7, 3, 2, 8, 1, 5]);
    assert_eq!(permutation(23, (1 << 32) + 5)[..12], [3, 11, 18, 8, 22, 21, 6, 16, 1, 13, 7, 17]);
    let long = permutation(1000, 77);
    assert_eq!(long[..12], [255, 805, 582, 963, 71, 972, 296, 31, 72, 685, 347, 757]);
    assert_eq!(long.iter().enumerate().map(|(i, v)| i * v).sum::<usize>() % 1_000_003, 798_654);
    assert_eq!((permutation(1, 3), permutation(0, 1)), (vec![0], vec![]));
    let shares: [&[usize]; 3] = [&[3, 2, 4, 7], &[0, 5, 10, 6], &[9, 8, 1, 3]];
    for (rank, share) in shares.iter().enumerate() {
        let sampler = DistributedSampler::new(11, 3, rank).unwrap().seed(5);
        assert_eq!(order(&sampler, 2), *share);
        assert_eq!(order(&sampler.drop_last(true), 2), share[..3]);
    }
}

#[test]
fn cursors_resume() {
    let mut run = BatchSampler::new(RandomSampler::new(11).seed(8), 3, false).unwrap().cursor();
    assert_eq!(run.by_ref().count(), 4);
    assert_eq!(run.epoch(), 1);
    run.by_ref().take(2).for_each(drop);
    let saved = run.state().unwrap();
    let rest: Vec<Vec<usize>> = run.map(Result::unwrap).collect();
    let mut again = BatchSampler::new(RandomSampler::new(11), 3, false).unwrap().cursor();
    again.load_state(&saved).unwrap();
    assert_eq!((again.epoch(), again.position()), (1, 2));
    assert_eq!(again.map(Result::unwrap).collect::<Vec<_>>(), rest);
    let mut other = SequentialSampler::new(1).cursor();
    assert!(other.load_state(&saved).is_err());
    assert_eq!(other.position(), 0);
    assert!(other.load_state(&rushlight_tensor::state::Value::None).is_err());
}
