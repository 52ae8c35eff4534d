//! Setters of builders and options.

/// Declares setters of a builder, within its `impl`: each stores its argument in the field of the same name and returns
/// the builder. `name: Type;` takes the type itself, `name: into Type;` everything that converts to it.
#[macro_export]
#[doc(hidden)]
macro_rules! setters {
    () => {};
    ($(#[$doc:meta])* $name:ident: into $type:ty; $($rest:tt)*) => {
        $(#[$doc])*
        pub fn $name(mut self, $name: impl Into<$type>) -> Self {
            self.$name = $name.into();
            self
        }
        $crate::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident: $type:ty; $($rest:tt)*) => {
        $(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        }
        $crate::setters! { $($rest)* }
    };
}
