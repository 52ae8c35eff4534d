use super::*;

#[test]
fn absurd_sizes_beside_a_zero_are_refused() {
    let huge = 1 << 32;
    for shape in [[0, huge, huge], [huge, huge, 0]] {
        assert!(Layout::contiguous(&shape).is_err());
    }
    assert!(Layout::contiguous(&[0, huge, 4]).unwrap().is_contiguous());
    assert!(Layout::contiguous(&[0]).unwrap().view(&[huge, huge, huge]).is_none());
}

#[test]
fn view_follows_strides_where_it_can() {
    let base = Layout::contiguous(&[4, 6]).unwrap();
    assert_eq!(base.view(&[2, 2, 6]).unwrap().strides(), [12, 6, 1]);
    let t = base.transpose(0, 1);
    assert!(t.view(&[24]).is_none());
    assert_eq!(t.view(&[2, 3, 4]).unwrap().strides(), [3, 1, 6]);
    assert_eq!(t.view(&[6, 1, 4, 1]).unwrap().shape(), [6, 1, 4, 1]);
    let e = Layout::contiguous(&[1, 3]).unwrap().expand(&[4, 3]).unwrap();
    assert!(e.view(&[12]).is_none());
    assert_eq!(e.view(&[2, 2, 3]).unwrap().strides(), [0, 0, 1]);
    let ones = Layout::strided(&[2, 1, 3], &[3, 77, 1], 0).unwrap();
    assert_eq!(ones.view(&[6]).unwrap().strides(), [1]);
}

#[test]
fn results_keep_the_order_of_their_operands() {
    let t = Layout::contiguous(&[4, 6]).unwrap().transpose(0, 1);
    assert!(t.is_dense() && t.preserved().strides() == [1, 6]);
    let gaps = t.slice(0, 1, 3, 1).with_offset(7);
    assert!(!gaps.is_dense());
    assert_eq!((gaps.preserved().strides(), gaps.preserved().offset()), (&[1, 3][..], 0));
    let row = Layout::contiguous(&[4]).unwrap().expand(&[6, 4]).unwrap();
    assert_eq!(Layout::of_pointwise(&[6, 4], &[&row, &t]).strides(), [1, 6]);
    assert_eq!(Layout::of_pointwise(&[6, 4], &[&row]).strides(), [4, 1]);
    let images = Layout::channels_last(&[2, 3, 4, 5]).unwrap();
    assert_eq!(images.strides(), [60, 1, 15, 3]);
    assert!(images.suggests_channels_last() && images.is_dense());
    assert_eq!(&images.memory_order()[..], [0, 2, 3, 1]);
    assert!(!Layout::contiguous(&[2, 3, 4, 5]).unwrap().suggests_channels_last());
    assert!(!Layout::contiguous(&[2, 1, 1, 1]).unwrap().suggests_channels_last());
}

#[test]
fn nest_merges_common_runs() {
    let n = Nest::new(&[2, 3, 4], [&[12, 4, 1], &[12, 4, 1]]);
    assert_eq!(&n.shape[..], [24]);
    let n = Nest::new(&[2, 3, 4], [&[12, 4, 1], &[0, 4, 1]]);
    assert_eq!(&n.shape[..], [2, 12]);
    assert_eq!(n.offsets(13), [13, 1]);
    assert_eq!(Nest::new(&[], [&[]]).numel(), 1);
}

#[test]
fn overlap_is_seen() {
    assert!(!Layout::contiguous(&[3, 4]).unwrap().overlaps());
    assert!(Layout::contiguous(&[3]).unwrap().expand(&[2, 3]).unwrap().overlaps());
    assert!(Layout::contiguous(&[5]).unwrap().unfold(0, 3, 1).overlaps());
    assert!(!Layout::contiguous(&[6]).unwrap().unfold(0, 3, 3).overlaps());
}

#[test]
fn parts_of_a_dimension_are_apart() {
    let whole = Layout::contiguous(&[2, 4, 6]).unwrap();
    let [left, right] = [0, 3].map(|start| whole.slice(2, start, 3, 1));
    assert!(left.is_apart(&right) && right.is_apart(&left));
    assert!(!left.is_apart(&whole) && !left.is_apart(&left) && !left.is_apart(&whole.slice(2, 2, 2, 1)));
    // In another order; merged dimensions are not understood.
    assert!(left.permute(&[1, 0, 2]).is_apart(&right));
    assert!(!whole.slice(1, 0, 2, 1).view(&[2, 12]).unwrap().is_apart(&whole.slice(1, 2, 2, 1)));
    assert!(whole.select(0, 0).is_apart(&whole.select(0, 1)) && !whole.select(0, 0).is_apart(&whole.select(1, 0)));
    // Steps of two meet at every other place only; a view that leaves its row is not understood.
    assert!(!whole.slice(2, 0, 3, 2).is_apart(&whole.slice(2, 1, 2, 1)));
    let window = Layout::strided(&[2, 3], &[6, 1], 4).unwrap();
    assert!(!window.is_apart(&Layout::strided(&[2, 3], &[6, 1], 0).unwrap()));
    assert!(!Layout::strided(&[3], &[0], 0).unwrap().is_apart(&whole));
}
