//! Boxes of detected objects.

use crate::Tensor;
use crate::autograd::no_grad;
use rushlight_core::{DType, Device, Element, Error, Result};
use std::ops::{Add, Div, Mul, Sub};

impl Tensor {
    /// Non-maximum suppression: the indices of boxes (`[n, 4]`, corners) that no better box overlaps by more than
    /// `iou_threshold` of their union, best first. The choice is made on the host.
    pub fn nms(&self, scores: &Tensor, iou_threshold: f64) -> Result<Tensor> {
        let (boxes, order) = (self.shape(), scores.shape());
        if boxes.len() != 2 || boxes[1] != 4 || order.len() != 1 || order[0] != boxes[0] {
            return Err(Error::shape(format!(
                "nms: expected boxes [n, 4] and scores [n], got boxes {boxes:?} and scores {order:?}"
            )));
        }
        no_grad(|| {
            let order = scores.argsort(0, true)?;
            let sorted = self.index_select(0, &order)?.to(Device::Cpu)?;
            let kept = match self.dtype() {
                DType::F32 | DType::F16 | DType::BF16 => kept::<f32>(&sorted, iou_threshold)?,
                _ => kept::<f64>(&sorted, iou_threshold)?,
            };
            order.index_select(0, &Tensor::new(kept)?.to(order.device())?)
        })
    }
}

/// Positions of the chosen among boxes that are sorted by score.
fn kept<T>(boxes: &Tensor, threshold: f64) -> Result<Vec<i64>>
where
    T: Element + PartialOrd + Into<f64> + Add<Output = T> + Sub<Output = T> + Mul<Output = T> + Div<Output = T>,
{
    let corners = boxes.to_vec::<T>()?;
    let boxes: Vec<&[T]> = corners.chunks_exact(4).collect();
    let area = |b: &[T]| (b[2] - b[0]) * (b[3] - b[1]);
    let (larger, smaller) = (|a: T, b: T| if a > b { a } else { b }, |a: T, b: T| if a < b { a } else { b });
    let mut suppressed = vec![false; boxes.len()];
    let mut kept = Vec::new();
    for (i, a) in boxes.iter().enumerate() {
        if suppressed[i] {
            continue;
        }
        kept.push(i as i64);
        for (b, suppressed) in boxes[i + 1..].iter().zip(&mut suppressed[i + 1..]) {
            let width = larger(smaller(a[2], b[2]) - larger(a[0], b[0]), T::default());
            let height = larger(smaller(a[3], b[3]) - larger(a[1], b[1]), T::default());
            let shared = width * height;
            *suppressed |= (shared / (area(a) + area(b) - shared)).into() > threshold;
        }
    }
    Ok(kept)
}
