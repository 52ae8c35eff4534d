//! Schedules against their formulas, and backward passes in two parts against whole ones.

use rushlight_core::Result;
use rushlight_dist::pipeline::{Action, Costs, Phase, Schedule, SplitBackward};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Backward, grad};

fn bubble(schedule: &Schedule) -> f64 {
    schedule.simulate(&Costs::default()).unwrap().bubble()
}

#[test]
fn bubbles_are_those_of_the_formulas() {
    for (p, m) in [(1, 1), (2, 2), (2, 8), (4, 4), (4, 8), (8, 32), (3, 5)] {
        let expected = (p - 1) as f64 / (m + p - 1) as f64;
        for schedule in [Schedule::gpipe(p, m), Schedule::one_f_one_b(p, m)] {
            assert!((bubble(&schedule.unwrap()) - expected).abs() < 1e-9, "{p} {m}");
        }
    }
    for (p, v, m) in [(2, 2, 4), (4, 2, 8), (4, 4, 16), (8, 2, 16)] {
        let ideal = (3 * m * v) as f64;
        let expected = 3.0 * (p - 1) as f64 / (ideal + 3.0 * (p - 1) as f64);
        let got = bubble(&Schedule::interleaved(p, v, m).unwrap());
        assert!((got - expected).abs() < 1e-9, "{p} {v} {m}: {got} {expected}");
    }
}

#[test]
fn one_f_one_b_holds_as_many_activations_as_stages_follow() {
    let peak = Schedule::one_f_one_b(4, 16).unwrap().simulate(&Costs::default()).unwrap().peak;
    assert_eq!(peak, [4, 3, 2, 1]);
    let peak = Schedule::gpipe(4, 16).unwrap().simulate(&Costs::default()).unwrap().peak;
    assert_eq!(peak, [16; 4]);
}

#[test]
fn zero_bubble_schedules_idle_less_with_the_same_memory() {
    for (p, m) in [(2, 4), (4, 8), (4, 16), (8, 32)] {
        let (base, zero) = (Schedule::one_f_one_b(p, m).unwrap(), Schedule::zero_bubble(p, 1, m).unwrap());
        assert!(zero.splits_backward());
        assert!(bubble(&zero) < 0.6 * bubble(&base), "{p} {m}: {} {}", bubble(&zero), bubble(&base));
        let held = zero.simulate(&Costs::default()).unwrap().peak;
        assert!(held.iter().all(|&held| held <= p), "{p} {m}: {held:?}");
        let v = Schedule::zero_bubble_v(p, m).unwrap();
        assert!(
            bubble(&v) < bubble(&zero),
            "{p} {m}: {} {}\n{}",
            bubble(&v),
            bubble(&zero),
            v.chart(&Costs::default()).unwrap()
        );
        let held = v.simulate(&Costs::default()).unwrap().peak;
        // Half stages: twice as many are the memory of 1F1B; one more is under way.
        assert!(held.iter().all(|&held| held <= 2 * p + 1), "{p} {m}: {held:?}");
        let interleaved = Schedule::zero_bubble(p, 2, m).unwrap();
        assert!(bubble(&interleaved) < bubble(&Schedule::interleaved(p, 2, m).unwrap()));
    }
}

#[test]
fn dual_pipe_pairs_forward_and_backward_passes() {
    for (p, m) in [(2, 8), (4, 16), (8, 32)] {
        let (dual, base) = (Schedule::dual_pipe_v(p, m).unwrap(), Schedule::one_f_one_b(p, m).unwrap());
        assert!(bubble(&dual) < 0.6 * bubble(&base), "{p} {m}: {} {}", bubble(&dual), bubble(&base));
        let held = dual.simulate(&Costs::default()).unwrap().peak;
        assert!(held.iter().all(|&held| held <= 2 * p + 1), "{p} {m}: {held:?}");
    }
    assert!(Schedule::dual_pipe_v(4, 7).unwrap_err().to_string().contains("microbatches"));
    // PyTorch's order, its paired passes one after the other.
    let order = Schedule::dual_pipe_v(2, 4).unwrap();
    let text = |rank: usize| order.actions()[rank].iter().map(Action::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(text(0), "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3");
    assert_eq!(text(1), "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3");
}

#[test]
fn every_size_has_an_order() {
    for p in 1..6 {
        for m in 1..12 {
            Schedule::gpipe(p, m).unwrap();
            Schedule::one_f_one_b(p, m).unwrap();
            Schedule::zero_bubble(p, 1, m).unwrap();
            Schedule::zero_bubble_v(p, m).unwrap();
            Schedule::looped_bfs(p, 3, m).unwrap();
            Schedule::dual_pipe_v(p, m + 2 * p).unwrap();
        }
        for v in 2..4 {
            Schedule::interleaved(p, v, 2 * p).unwrap();
            Schedule::zero_bubble(p, v, 2 * p).unwrap();
        }
    }
}

#[test]
fn wrong_schedules_are_refused_with_the_reason() {
    let action = |text: &str| {
        let letters = "FBIW";
        let at = text.find(|c| letters.contains(c)).unwrap();
        let phase = [Phase::Forward, Phase::Backward, Phase::InputGrad, Phase::WeightGrad]
            [letters.find(&text[at..=at]).unwrap()];
        Action { stage: text[..at].parse().unwrap(), phase, microbatch: text[at + 1..].parse().unwrap() }
    };
    let schedule = |lists: &[&str]| {
        let lists = lists.iter().map(|list| list.split(' ').map(action).collect()).collect();
        Schedule::new("test", 2, vec![0, 1], lists).map(drop)
    };
    schedule(&["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]).unwrap();
    for (lists, reason) in [
        (["0B0 0F0 0F1 0B1", "1F0 1B0 1F1 1B1"], "wait for each other: rank 0 at 0B0, rank 1 at 1F0"),
        (["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"], "rank 0 at 0B0, rank 1 at 1F1"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1"], "stage 1, microbatch 1 has the actions [Forward]"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 0B1"], "rank 1 has 0B1, whose stage is on rank 0"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1I1"], "one backward pass"),
    ] {
        let message = schedule(&lists).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
    let message = Schedule::interleaved(4, 2, 9).unwrap_err().to_string();
    assert!(message.contains("multiple of 2"), "{message}");
    let message = Schedule::by_name("DualPipe", 2, 1, 4).unwrap_err().to_string();
    assert!(message.contains("ZBVZeroBubble"), "{message}");
}

#[test]
fn messages_are_received_in_the_order_they_are_sent() {
    for schedule in [Schedule::interleaved(2, 2, 4).unwrap(), Schedule::zero_bubble_v(3, 6).unwrap()] {
        for (rank, list) in schedule.actions().iter().enumerate() {
            for &action in list {
                if let Some(message) = schedule.received(action) {
                    let from = schedule.placement()[message.from];
                    assert!(schedule.messages(from, rank).contains(&message));
                }
            }
        }
    }
}

#[test]
fn a_chart_shows_bubbles() {
    let chart = Schedule::one_f_one_b(2, 2).unwrap().chart(&Costs::default()).unwrap();
    let expected = "rank   0 |F0 F1  .  . B0 --  . B1 -- | 2 held\n\
                    rank   1 | . F0 B0 -- F1 B1 --  .  . | 1 held\n\
                    1F1B: 2 stages on 2 ranks, 2 microbatches, bubble 33.3 %\n";
    assert_eq!(chart, expected, "{chart}");
    let svg = Schedule::zero_bubble_v(2, 4).unwrap().svg(&Costs::default()).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("bubble") && svg.matches("<rect").count() == 4 * 4 * 3);
}

#[test]
fn a_backward_pass_in_two_parts_equals_one() -> Result<()> {
    let w = |n: usize, m: usize| Tensor::randn([n, m])?.requires_grad_(true);
    let (a, b, c) = (w(5, 7)?, w(7, 3)?, w(1, 7)?);
    for shared in [false, true] {
        let x = Tensor::randn([4, 5])?.requires_grad_(true)?;
        let run = || -> Result<Tensor> {
            let mut h = x.matmul(&a)?.add(&c)?.relu()?;
            if shared {
                h = h.add(&x.matmul(&a)?.tanh()?)?;
            }
            h.matmul(&b)
        };
        let dy = Tensor::randn([4, 3])?;
        let y = run()?;
        let expected = grad(&[&y], &[&x, &a, &b, &c], Backward::default().gradient(&dy))?;
        let y = run()?;
        let (grads, rest) = SplitBackward::inputs(&[(&y, Some(&dy))], &[&x])?;
        assert!(a.grad().is_none() && b.grad().is_none());
        rest.weights()?;
        let found = [grads[0].clone(), a.grad(), b.grad(), c.grad()];
        for (found, expected) in found.iter().zip(&expected) {
            let (found, expected) = (found.as_ref().unwrap(), expected.as_ref().unwrap());
            assert!(found.sub(expected)?.abs()?.max(..)?.item::<f32>()? < 1e-5);
        }
        [&a, &b, &c].into_iter().for_each(Tensor::zero_grad);
        x.zero_grad();
    }
    Ok(())
}
