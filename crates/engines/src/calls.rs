//! The list of engine calls that compute, for engines that treat all of them alike.

/// Expands to `$methods! { name(types…); … }` with every call of `Backend` that computes on elements and has no
/// default. Calls that only move elements are not among them: a carried dtype has those.
macro_rules! computing_calls {
    ($methods:ident) => {
        $methods! {
            arange(Scalar, Scalar, View);
            pointwise_grad(Pointwise, usize, DType, [Option<Operand>; 5], &[f64], View);
            dropout(View, f64, Philox, View);
            arg_reduce(ArgReduce, View, usize, View, View);
            scan(Scan, View, usize, View, Option<View>);
            sort(View, usize, bool, View, View);
            topk(View, usize, bool, View, View);
            searchsorted(View, View, bool, View);
            nonzero(View, View);
            matmul(&MatMul);
            conv_forward(&Conv, View, View, Option<View>, View);
            conv_backward_input(&Conv, View, View, View);
            conv_backward_weight(&Conv, View, View, View);
            max_pool(&Pool, View, View, View);
            max_pool_backward(&Pool, View, View, View);
            avg_pool(&Pool, View, View);
            avg_pool_backward(&Pool, View, View);
            softmax(bool, [usize; 3], View, View);
            softmax_backward(bool, [usize; 3], View, View, View);
            row_norm(&RowNorm, View, Option<View>, Option<View>, View, Option<View>, View, View);
            row_norm_backward(&RowNorm, View, View, Option<View>, View, View, Option<View>, Option<View>, Option<View>, Option<View>, Option<View>);
            batch_norm(&BatchNorm, View, Option<View>, Option<View>, View, View, View);
            batch_norm_backward(&BatchNorm, View, View, Option<View>, View, View, Option<View>, Option<View>, Option<View>);
            cross_entropy(&CrossEntropy, View, View, View);
            cross_entropy_backward(&CrossEntropy, View, View, View);
            attention(&Attention, View, View);
            attention_backward(&Attention, View, View, View, View, View, View);
            update(&[ParamUpdate], Operand);
            foreach_norm(f64, &[View], View);
            foreach_scale(Option<Operand>, &[View], Option<View>);
            linalg(Linalg, &[View], &[View]);
        }
    };
}

pub(crate) use computing_calls;
