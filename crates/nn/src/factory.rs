//! Options shared by all layers' builders.

/// `dtype`, `device` and both as `options` for a builder with a field `options`, perhaps generic over the number of
/// dimensions.
macro_rules! factory_options {
    ($builder:ident) => {
        $crate::factory_options!([] $builder);
    };
    ($builder:ident<$dims:ident>) => {
        $crate::factory_options!([const $dims: usize] $builder<$dims>);
    };
    ([$($generic:tt)*] $builder:ty) => {
        impl<$($generic)*> $builder {
            /// The dtype of the parameters, `float32` by default.
            pub fn dtype(mut self, dtype: rushlight_core::DType) -> Self {
                self.options = self.options.dtype(dtype);
                self
            }

            /// Where the parameters live, on the CPU by default.
            pub fn device(mut self, device: rushlight_core::Device) -> Self {
                self.options = self.options.device(device);
                self
            }

            /// Dtype and device at once, as layers made of layers hand them on.
            pub fn options(mut self, options: impl Into<rushlight_tensor::Options>) -> Self {
                self.options = options.into();
                self
            }
        }
    };
}

pub(crate) use factory_options;
