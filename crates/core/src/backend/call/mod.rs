//! Engine calls as values: one struct per family, with named fields, and [`Call`] over all of them.
//!
//! A row of the table below is a whole family: the struct, its variant of [`Call`], its name, and which views it reads,
//! writes or changes. Everything that treats calls alike (default bodies, profiler, carried dtypes, recorded programs)
//! works on [`Call`] and needs no list of its own.
//!
//! A call is generic over its views: engines run `Call<View>`, a recorded [`Program`](crate::program::Program) keeps
//! `Call<Slot>`.

mod check;
mod cost;
mod table;
mod views;

pub use cost::Shaped;
pub use table::*;
pub use views::{Access, Few, List, Marks, Numbers, Operand, Operands};

/// Declares the call structs and [`Call`].
///
/// `reads` are inputs, `writes` are outputs that the engine fills, `changes` are both. The word after a view's name is
/// its form, a module of [`views`]: `one`, `maybe`, `list`, `operand`…
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident $Name:ident $(: $Copy:ident)? {
            $(params { $( $(#[$pdoc:meta])* $param:ident : $ptype:ty ),* $(,)? })?
            $(reads { $( $(#[$rdoc:meta])* $read:ident : $rform:ident ),* $(,)? })?
            $(writes { $( $(#[$wdoc:meta])* $write:ident : $wform:ident ),* $(,)? })?
            $(changes { $( $(#[$cdoc:meta])* $change:ident : $cform:ident ),* $(,)? })?
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug)]
            pub struct $Name<V> {
                $($( $(#[$pdoc])* pub $param: $ptype, )*)?
                $($( $(#[$rdoc])* pub $read: $crate::backend::call::views::$rform::Of<V>, )*)?
                $($( $(#[$wdoc])* pub $write: $crate::backend::call::views::$wform::Of<V>, )*)?
                $($( $(#[$cdoc])* pub $change: $crate::backend::call::views::$cform::Of<V>, )*)?
            }

            impl<V> $Name<V> {
                /// Calls `f` with every view: inputs, then outputs.
                pub fn visit<'s>(&'s self, f: &mut dyn FnMut(Access, &'s V)) {
                    use $crate::backend::call::views;
                    $($( views::$rform::visit(&self.$read, Access::Read, f); )*)?
                    $($( views::$wform::visit(&self.$write, Access::Write, f); )*)?
                    $($( views::$cform::visit(&self.$change, Access::Change, f); )*)?
                }

                /// Calls `f` with the name and value of every parameter that is not a view.
                pub fn params(&self, f: &mut dyn FnMut(&'static str, &dyn ::std::fmt::Debug)) {
                    let _ = &f;
                    $($( f(stringify!($param), &self.$param); )*)?
                }

                /// The same call over other views.
                pub fn map<'s, W>(&'s self, f: &mut dyn FnMut(Access, &'s V) -> W) -> $Name<W> {
                    use $crate::backend::call::views;
                    $Name {
                        $($( $param: self.$param.clone(), )*)?
                        $($( $read: views::$rform::map(&self.$read, Access::Read, f), )*)?
                        $($( $write: views::$wform::map(&self.$write, Access::Write, f), )*)?
                        $($( $change: views::$cform::map(&self.$change, Access::Change, f), )*)?
                    }
                }
            }

            $( impl<V: ::std::marker::$Copy> ::std::marker::$Copy for $Name<V> {} )?

            impl<V> From<$Name<V>> for Call<V> {
                #[inline(always)]
                fn from(call: $Name<V>) -> Self {
                    Call::$Name(call)
                }
            }
        )*

        /// An engine call.
        #[derive(Clone, Debug)]
        pub enum Call<V> {
            $( $(#[$doc])* $Name($Name<V>), )*
        }

        impl<V> Call<V> {
            /// The names of all families.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The family's name.
            pub const fn name(&self) -> &'static str {
                match self { $( Call::$Name(_) => stringify!($name), )* }
            }

            /// Calls `f` with every view: inputs, then outputs.
            pub fn visit<'s>(&'s self, f: &mut dyn FnMut(Access, &'s V)) {
                match self { $( Call::$Name(call) => call.visit(f), )* }
            }

            /// Calls `f` with the name and value of every parameter that is not a view.
            pub fn params(&self, f: &mut dyn FnMut(&'static str, &dyn ::std::fmt::Debug)) {
                match self { $( Call::$Name(call) => call.params(f), )* }
            }

            /// The same call over other views.
            pub fn map<'s, W>(&'s self, f: &mut dyn FnMut(Access, &'s V) -> W) -> Call<W> {
                match self { $( Call::$Name(call) => Call::$Name(call.map(f)), )* }
            }
        }
    };
}
pub(crate) use calls;

impl<V> Call<V> {
    /// How the call really uses a view that its family may change: a product with `beta` 0 only writes.
    pub fn effective(&self, access: Access) -> Access {
        let writes = match self {
            Call::MatMul(c) => c.beta == 0.0,
            Call::PackedMatMul(c) => c.beta == 0.0,
            Call::MatMulGelu(c) => c.product.beta == 0.0,
            Call::MatMulGeluBackward(c) => c.product.beta == 0.0,
            Call::ConvBackwardInput(c) => !c.accumulate,
            Call::BatchNorm(c) => c.spec.training,
            _ => false,
        };
        if access == Access::Change && writes { Access::Write } else { access }
    }

    /// The random stream of a call that draws numbers.
    pub fn stream_mut(&mut self) -> Option<&mut crate::Philox> {
        match self {
            Call::Random(c) => Some(&mut c.stream),
            Call::Permutation(c) => Some(&mut c.stream),
            Call::Dropout(c) => Some(&mut c.stream),
            Call::Attention(c) => c.of.dropout.as_mut().map(|(_, stream)| stream),
            Call::AttentionBackward(c) => c.of.dropout.as_mut().map(|(_, stream)| stream),
            _ => None,
        }
    }

    /// The first output.
    pub fn output(&self) -> Option<&V> {
        let mut found = None;
        self.visit(&mut |access, view| {
            if access != Access::Read && found.is_none() {
                found = Some(view);
            }
        });
        found
    }

    /// The inputs, changed ones included.
    pub fn inputs(&self) -> Vec<&V> {
        self.with(|access| access != Access::Write)
    }

    /// The outputs, changed ones included.
    pub fn outputs(&self) -> Vec<&V> {
        self.with(|access| access != Access::Read)
    }

    fn with(&self, wanted: impl Fn(Access) -> bool) -> Vec<&V> {
        let mut found = Vec::new();
        self.visit(&mut |access, view| {
            if wanted(access) {
                found.push(view);
            }
        });
        found
    }
}
