//! Declaration of functions: each contains panics and describes itself for the header.

/// A function of the interface, in Rust's words.
pub struct Declaration {
    pub name: &'static str,
    pub doc: &'static str,
    /// Names and types of the parameters.
    pub parameters: &'static [(&'static str, &'static str)],
    pub returns: &'static str,
}

/// Functions of the interface. The body of `try` is a `Result`, which becomes a status; others have the value to return
/// after a panic in brackets. All may be called from several threads at once.
macro_rules! api {
    ($($(#[doc = $doc:literal])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $mode:tt $body:block)*) => {
        $(
            $(#[doc = $doc])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                api!(@body $mode $body)
            }
        )*
        pub const API: &[$crate::api::Declaration] = &[$($crate::api::Declaration {
            name: stringify!($name),
            doc: concat!("" $(, $doc, "\n")*),
            parameters: &[$((stringify!($arg), stringify!($ty)),)*],
            returns: stringify!($ret),
        }),*];
    };
    (@body try $body:block) => { $crate::status::run(|| $body) };
    (@body ($otherwise:expr) $body:block) => { $crate::status::guard(|| $body, $otherwise) };
}
