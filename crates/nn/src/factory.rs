//! What every layer's builder has.

/// `dtype` and `device` for a builder with a field `options`.
macro_rules! factory_options {
    ($builder:ty) => {
        impl $builder {
            /// The dtype of the parameters, `float32` unless said otherwise.
            pub fn dtype(mut self, dtype: rushlight_core::DType) -> Self {
                self.options = self.options.dtype(dtype);
                self
            }

            /// Where the parameters live, on the CPU unless said otherwise.
            pub fn device(mut self, device: rushlight_core::Device) -> Self {
                self.options = self.options.device(device);
                self
            }
        }
    };
}

pub(crate) use factory_options;
