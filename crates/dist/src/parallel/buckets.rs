//! Gradient buckets: contiguous memory that is reduced in one collective.

use super::reducer::Settings;
use rushlight_core::{DType, Device, Result};
use rushlight_tensor::Tensor;

/// Maximum bytes of the first bucket: a small one starts communication early in backward.
const FIRST_BYTES: usize = 1 << 20;

/// Alignment of gradients in a bucket, in bytes: kernels write whole vectors there.
const ALIGNMENT: usize = 64;

/// Gradients of some parameters, of one dtype on one device.
pub(super) struct Bucket {
    /// The flat tensor of all gradients, with small gaps for alignment.
    pub(super) flat: Tensor,
    /// The parameters in order, and a view of the flat tensor in the shape of each.
    pub(super) members: Vec<(usize, Tensor)>,
    /// Parameters whose gradients have not arrived yet.
    pub(super) pending: usize,
}

/// Divides parameters into buckets, in the order given. As PyTorch's, a bucket is full when it reaches its size.
pub(super) fn divide(order: &[usize], parameters: &[(String, Tensor)], settings: &Settings) -> Result<Vec<Bucket>> {
    let mut full: Vec<Vec<usize>> = Vec::new();
    // An open list for each kind: dtype, device, bytes so far.
    let mut open: Vec<(DType, Device, usize, Vec<usize>)> = Vec::new();
    for &index in order {
        let p = &parameters[index].1;
        let at = match open.iter().position(|o| o.0 == p.dtype() && o.1 == p.device()) {
            Some(at) => at,
            None => {
                open.push((p.dtype(), p.device(), 0, Vec::new()));
                open.len() - 1
            }
        };
        open[at].2 += p.numel() * p.dtype().size();
        open[at].3.push(index);
        let limit = if full.is_empty() { FIRST_BYTES.min(settings.bucket_bytes) } else { settings.bucket_bytes };
        if open[at].2 >= limit {
            full.push(open.remove(at).3);
        }
    }
    full.extend(open.into_iter().map(|list| list.3));
    full.iter().map(|list| fill(list, parameters, settings.packed)).collect()
}

fn fill(list: &[usize], parameters: &[(String, Tensor)], packed: bool) -> Result<Bucket> {
    let first = &parameters[list[0]].1;
    let unit = if packed { 1 } else { ALIGNMENT / first.dtype().size() };
    let total: usize = list.iter().map(|&i| parameters[i].1.numel().next_multiple_of(unit)).sum();
    // Gaps are zeros, and stay so.
    let flat = Tensor::zeros_with([total], (first.dtype(), first.device()))?;
    let mut members = Vec::with_capacity(list.len());
    let mut start = 0;
    for &index in list {
        let p = &parameters[index].1;
        let place = flat.narrow(0, start as isize, p.numel())?.reshape(p.shape())?;
        members.push((index, place.detach()));
        start += p.numel().next_multiple_of(unit);
    }
    Ok(Bucket { flat, pending: members.len(), members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_order_and_size() {
        let make = |n: usize, dtype: DType| (String::new(), Tensor::zeros_with([n], dtype).unwrap());
        let f = DType::F32;
        let parameters = [make(300_000, f), make(10, f), make(4, DType::F64), make(700_000, f), make(5, f)];
        let settings = Settings { bucket_bytes: 1 << 21, ..Default::default() };
        let buckets = divide(&[4, 3, 2, 1, 0], &parameters, &settings).unwrap();
        let lists: Vec<Vec<usize>> = buckets.iter().map(|b| b.members.iter().map(|m| m.0).collect()).collect();
        // The first bucket is full at 1 MiB; doubles have a separate one.
        assert_eq!(lists, [vec![4, 3], vec![2], vec![1, 0]]);
        let packed = divide(&[4, 3, 2, 1, 0], &parameters, &Settings { packed: true, ..settings }).unwrap();
        assert_eq!(packed[0].flat.numel(), 700_005);
        let members = || buckets.iter().flat_map(|b| b.members.iter().map(move |(_, place)| (b, place)));
        assert!(members().all(|(b, place)| place.shares_storage(&b.flat)));
        assert!(members().all(|(_, place)| (place.layout().offset() * place.dtype().size()) % ALIGNMENT == 0));
    }
}
