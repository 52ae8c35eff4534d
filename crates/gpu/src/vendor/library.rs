//! Finding and opening a vendor's libraries at run time. Building needs none of them.

use libloading::Library;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Search path of a vendor's libraries.
pub struct Search {
    /// Environment variable with directories to search first.
    pub variable: &'static str,
    /// Environment variables with a toolkit's root.
    pub toolkit_variables: &'static [&'static str],
    /// Default installation directories of toolkits.
    pub toolkits: &'static [&'static str],
    /// The directory of the vendor's Python packages in `site-packages`.
    pub packages: &'static str,
    /// Prefixes of a library's file name and of a companion that it loads by name only.
    pub companion: Option<(&'static str, &'static str)>,
}

impl Search {
    /// Directories where toolkits and Python packages put their libraries, searched after the system loader's.
    fn directories(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let named = self.toolkit_variables.iter().filter_map(std::env::var_os).map(PathBuf::from);
        for root in named.chain(self.toolkits.iter().map(PathBuf::from)) {
            found.push(root.join("lib64"));
            found.push(root.join("lib"));
            found.push(root.join("targets").join(format!("{}-linux", std::env::consts::ARCH)).join("lib"));
        }
        for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            let Some(root) = std::env::var_os(variable).map(PathBuf::from) else { continue };
            found.push(root.join("lib"));
            for site in children(&root.join("lib")) {
                let packages = children(&site.join("site-packages").join(self.packages));
                found.extend(packages.into_iter().map(|package| package.join("lib")));
            }
        }
        found
    }

    /// Opens the first available library of `names`: in the directories of the variable, then on the system loader's
    /// path, then in the toolkits' default directories. [`searched`] lists the attempts.
    pub fn open(&self, what: &str, names: &[&str], remedy: &str) -> Result<Opened> {
        let mut candidates = Vec::new();
        if let Some(paths) = std::env::var_os(self.variable) {
            for directory in std::env::split_paths(&paths) {
                candidates.extend(names.iter().map(|name| directory.join(name)));
            }
        }
        candidates.extend(names.iter().map(PathBuf::from));
        for directory in self.directories() {
            candidates.extend(names.iter().map(|name| directory.join(name)));
        }
        let mut why = String::new();
        for path in &candidates {
            self.open_companions(path);
            // SAFETY: these are the vendor's libraries, whose initialisers have no preconditions.
            match unsafe { Library::new(path) } {
                Ok(library) => return Ok(Opened { library, path: path.display().to_string() }),
                Err(e) if path.exists() => why = format!("; {e}"),
                Err(_) => {}
            }
        }
        Err(not_found(what, &why, remedy, candidates.iter().map(|p| p.display().to_string()).collect()))
    }

    /// Opens a library's siblings outside the loader's path, which it loads by name.
    fn open_companions(&self, path: &Path) {
        let Some((library, companion)) = self.companion else { return };
        let (Some(directory), Some(name)) = (path.parent().filter(|d| d.is_absolute()), path.file_name()) else {
            return;
        };
        if !name.to_string_lossy().starts_with(library) || !path.exists() {
            return;
        }
        for other in children(directory) {
            if other.file_name().is_some_and(|n| n.to_string_lossy().starts_with(companion)) {
                // SAFETY: a library of tables. It stays open for the life of the process.
                if let Ok(library) = unsafe { Library::new(&other) } {
                    std::mem::forget(library);
                }
            }
        }
    }
}

/// Libraries that were not found, and where they were looked for.
static SEARCHED: Mutex<Vec<(String, Vec<String>)>> = Mutex::new(Vec::new());

/// The error of a library that is missing: what it is, what to do, where to read more.
pub fn not_found(what: &str, why: &str, remedy: &str, tried: Vec<String>) -> Error {
    let mut searched = lock(&SEARCHED);
    if !searched.iter().any(|(known, _)| known == what) {
        searched.push((what.to_owned(), tried));
    }
    Error::device(format!(
        "{what} was not found{why}.\n{remedy}\nStart the program again afterwards; `rushlight doctor -v` lists the places that were searched."
    ))
}

/// Libraries that this process has not found, and where it has looked for them.
pub fn searched() -> Vec<(String, Vec<String>)> {
    lock(&SEARCHED).clone()
}

fn children(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Decodes a version packed into one number: 91002 is 9.10.2. In the encoding of cuDNN before 9 and NCCL before 2.9,
/// 8902 is 8.9.2.
pub fn triple(number: i32) -> String {
    let major = if number < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}

/// An opened library and its path.
pub struct Opened {
    pub library: Library,
    pub path: String,
}

/// Declares a table of a library's functions, opened once for the process. Optional functions come last; older versions
/// may lack them. A symbol is a string, or a sum of strings.
#[macro_export]
macro_rules! library_api {
    (
        $(#[$doc:meta])*
        $Api:ident($search:expr, $what:literal, $names:expr, $remedy:literal) {
            $(fn $name:ident = $symbol:literal $(+ $more:literal)* ($($arg:ty),* $(,)?);)*
            $(optional fn $maybe:ident = $maybe_symbol:literal $(+ $maybe_more:literal)* ($($maybe_arg:ty),* $(,)?);)*
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
            /// The library's functions, or the reason why it is unavailable.
            pub fn get() -> rushlight_core::Result<&'static Self> {
                static API: std::sync::OnceLock<rushlight_core::Result<$Api>> = std::sync::OnceLock::new();
                API.get_or_init(Self::open).as_ref().map_err(Clone::clone)
            }

            fn open() -> rushlight_core::Result<Self> {
                let $crate::vendor::library::Opened { library, path } = $search.open($what, $names, $remedy)?;
                $(
                    // SAFETY: the signature is the one the vendor documents for this symbol.
                    let $name = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> i32>(concat!($symbol $(, $more)*).as_bytes()) }
                        .map(|symbol| *symbol)
                        .map_err(|e| rushlight_core::Error::device(format!(
                            "{} ({path}) lacks {}: {e}; the library is too old; install a newer version",
                            $what,
                            concat!($symbol $(, $more)*),
                        )))?;
                )*
                $(
                    // SAFETY: as above.
                    let $maybe =
                        unsafe {
                            library.get::<unsafe extern "C" fn($($maybe_arg),*) -> i32>(concat!($maybe_symbol $(, $maybe_more)*).as_bytes())
                        }
                        .map(|symbol| *symbol)
                        .ok();
                )*
                Ok(Self { path, $($name,)* $($maybe,)* _library: library })
            }
        }
    };
}
