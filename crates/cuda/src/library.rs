//! Finding and opening NVIDIA's libraries at run time. Nothing of CUDA is needed to build.

use libloading::Library;
use rushlight_core::{Error, Result};
use std::path::PathBuf;

/// Directories where toolkits and Python packages put their libraries, after what the system's loader knows.
fn directories() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut toolkit = |root: PathBuf| {
        found.push(root.join("lib64"));
        found.push(root.join("lib"));
        found.push(root.join("targets").join(format!("{}-linux", std::env::consts::ARCH)).join("lib"));
    };
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(root) = std::env::var_os(variable) {
            toolkit(root.into());
        }
    }
    toolkit("/usr/local/cuda".into());
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let Some(root) = std::env::var_os(variable) else { continue };
        found.push(PathBuf::from(&root).join("lib"));
        for site in children(&PathBuf::from(&root).join("lib")) {
            found.extend(children(&site.join("site-packages").join("nvidia")).into_iter().map(|p| p.join("lib")));
        }
    }
    found
}

fn children(directory: &std::path::Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A library that is open, and where it was found.
pub struct Opened {
    pub library: Library,
    pub path: String,
}

/// Opens the first of `names` that can be: in the directories of `RUSHLIGHT_CUDA_PATH`, then where the system's loader looks, then where
/// toolkits usually are. The error says what was tried.
pub fn open(what: &str, names: &[&str], remedy: &str) -> Result<Opened> {
    let mut candidates = Vec::new();
    if let Some(paths) = std::env::var_os("RUSHLIGHT_CUDA_PATH") {
        for directory in std::env::split_paths(&paths) {
            candidates.extend(names.iter().map(|name| directory.join(name)));
        }
    }
    candidates.extend(names.iter().map(PathBuf::from));
    for directory in directories() {
        candidates.extend(names.iter().map(|name| directory.join(name)));
    }
    let mut why = String::new();
    for path in &candidates {
        open_companions(path);
        // SAFETY: these are NVIDIA's libraries, whose initialisers ask nothing of us.
        match unsafe { Library::new(path) } {
            Ok(library) => return Ok(Opened { library, path: path.display().to_string() }),
            Err(e) if path.exists() => why = format!("; {e}"),
            Err(_) => {}
        }
    }
    let tried: Vec<String> = candidates.iter().map(|p| p.display().to_string()).collect();
    Err(Error::device(format!("{what} was not found{why}. Tried: {}. {remedy}", tried.join(", "))))
}

/// Opens what lies beside a library outside the loader's paths and is asked for by name: NVRTC finds its built-in functions only so.
fn open_companions(path: &std::path::Path) {
    let (Some(directory), Some(name)) = (path.parent().filter(|d| d.is_absolute()), path.file_name()) else { return };
    if !name.to_string_lossy().starts_with("libnvrtc.") || !path.exists() {
        return;
    }
    for other in children(directory) {
        if other.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libnvrtc-builtins.so")) {
            // SAFETY: a library of tables. It stays open for the life of the process.
            if let Ok(library) = unsafe { Library::new(&other) } {
                std::mem::forget(library);
            }
        }
    }
}

/// A table of a library's functions, opened once for the process; optional ones come last, and may be missing from older versions.
macro_rules! api {
    (
        $(#[$doc:meta])*
        $Api:ident($what:literal, $names:expr, $remedy:literal) {
            $(fn $name:ident = $symbol:literal ($($arg:ty),* $(,)?);)*
            $(optional fn $maybe:ident = $maybe_symbol:literal ($($maybe_arg:ty),* $(,)?);)*
        }
    ) => {
        $(#[$doc])*
        pub struct $Api {
            /// Where the library was found.
            pub path: String,
            $(pub $name: unsafe extern "C" fn($($arg),*) -> i32,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> i32>,)*
            _library: libloading::Library,
        }

        impl $Api {
            /// The library's functions, or why there are none.
            pub fn get() -> rushlight_core::Result<&'static Self> {
                static API: std::sync::OnceLock<rushlight_core::Result<$Api>> = std::sync::OnceLock::new();
                API.get_or_init(Self::open).as_ref().map_err(Clone::clone)
            }

            fn open() -> rushlight_core::Result<Self> {
                let $crate::library::Opened { library, path } = $crate::library::open($what, $names, $remedy)?;
                $(
                    // SAFETY: the signature is the one NVIDIA documents for this symbol.
                    let $name = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> i32>($symbol) }
                        .map(|symbol| *symbol)
                        .map_err(|e| rushlight_core::Error::device(format!(
                            "{} ({path}) lacks {}: {e}; it is too old, a newer one is needed",
                            $what,
                            String::from_utf8_lossy($symbol),
                        )))?;
                )*
                $(
                    // SAFETY: as above.
                    let $maybe = unsafe { library.get::<unsafe extern "C" fn($($maybe_arg),*) -> i32>($maybe_symbol) }
                        .map(|symbol| *symbol)
                        .ok();
                )*
                Ok(Self { path, $($name,)* $($maybe,)* _library: library })
            }
        }
    };
}
pub(crate) use api;
