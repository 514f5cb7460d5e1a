//! The environment of a program, by which it finds the libraries: `docs/using.md` says why each is
//! there.
//!
//! A search path gets our folder in front; any other variable is set only where the user has not.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a program finds the loader's libraries.
const LIBRARIES: &str = "LD_LIBRARY_PATH";
/// What the loader loads before all else.
const PRELOADED: &str = "LD_PRELOAD";
/// Where Triton looks for the driver library, instead of in the loader's cache of the system.
const TRITON: &str = "TRITON_LIBCUDA_PATH";
/// What the loader takes before it searches. Packages that bring their own NCCL or cuFile name its
/// folder in their libraries, which comes before [`LIBRARIES`].
const FIRST: &str = "LD_PRELOAD";
/// Libraries that stand in for those of packages, and the variables that say whether programs get
/// them: NCCL, which runs on the servers, and cuFile, whose files are the program's.
const STAND_INS: [(&str, &str); 2] =
    [("libnccl.so.2", "OUTBOARD_NCCL"), ("libcufile.so.0", "OUTBOARD_CUFILE")];
/// Where Python looks for modules.
const MODULES: &str = "PYTHONPATH";

/// The variables to set, given those that are set. `libraries` holds the driver library, `modules`
/// what Python packages need.
pub(crate) fn variables(
    given: impl Fn(&str) -> Option<OsString>,
    libraries: &Path,
    modules: Option<&Path>,
) -> BTreeMap<&'static str, OsString> {
    let mut variables = BTreeMap::new();
    variables.insert(LIBRARIES, in_front(libraries.as_os_str(), given(LIBRARIES)));
    if let Some(modules) = modules {
        variables.insert(MODULES, in_front(modules.as_os_str(), given(MODULES)));
    }
    let stand_ins = stand_ins(&given).map(|file| libraries.join(file));
    let stand_ins: Vec<PathBuf> = stand_ins.filter(|file| file.is_file()).collect();
    if !stand_ins.is_empty() {
        let stand_ins: Vec<&OsStr> = stand_ins.iter().map(|file| file.as_os_str()).collect();
        variables.insert(FIRST, in_front(&stand_ins.join(OsStr::new(":")), given(FIRST)));
    }
    // Values that an earlier `outboard run` or `outboard env` has set are ours: the folder of the
    // client, or of the software device beside it.
    let is_ours = |folder: &OsStr| {
        Path::new(folder).parent().is_some_and(|above| Some(above) == libraries.parent())
    };
    if given(TRITON).is_none_or(|folder| is_ours(&folder)) {
        variables.insert(TRITON, libraries.as_os_str().to_owned());
    }
    variables
}

/// The libraries of [`STAND_INS`] that the user wants.
pub(crate) fn stand_ins(
    given: impl Fn(&str) -> Option<OsString>,
) -> impl Iterator<Item = &'static str> {
    let wanted = move |variable| given(variable).is_none_or(|wanted| wanted != "off");
    STAND_INS.into_iter().filter(move |(_, variable)| wanted(variable)).map(|(file, _)| file)
}

/// The variable by which the loader loads a library before all others, and its value.
pub(crate) fn preloaded(
    given: impl Fn(&str) -> Option<OsString>,
    library: &Path,
) -> (&'static str, OsString) {
    (PRELOADED, in_front(library.as_os_str(), given(PRELOADED)))
}

/// What becomes of a variable in an environment that is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It is a search path, in which ours comes first.
    InFront,
    /// What the user has set stays.
    UnlessSet,
}

impl How {
    /// As it is written between a name and a value.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            How::InFront => "+=",
            How::UnlessSet => "?=",
        }
    }
}

/// The same variables for such an environment.
pub(crate) fn rules(
    libraries: &Path,
    modules: Option<&Path>,
) -> Vec<(&'static str, How, OsString)> {
    let how = |name| {
        if [FIRST, LIBRARIES, MODULES].contains(&name) { How::InFront } else { How::UnlessSet }
    };
    let all = variables(|_| None, libraries, modules).into_iter();
    all.map(|(name, value)| (name, how(name), value)).collect()
}

/// Leaves Outboard's own driver libraries out of where this process and what it starts find
/// libraries: an earlier `outboard run` or `outboard env` has put them there.
pub(crate) fn forget_own_libraries() {
    let own = [crate::install::client_dir(), crate::install::cpu_dir()];
    let mut own: Vec<PathBuf> = own.into_iter().flatten().collect();
    own.extend(
        std::env::var_os(LIBRARIES)
            .iter()
            .flat_map(std::env::split_paths)
            .filter(|folder| crate::library::is_kept(folder)),
    );
    keep(LIBRARIES, |folder| !own.iter().any(|own| own == folder));
    let is_ours = |file: &Path| {
        own.iter().any(|own| STAND_INS.iter().any(|(stand_in, _)| own.join(stand_in) == file))
    };
    keep(FIRST, |file| !is_ours(file));
}

/// Keeps some of the entries of a variable.
fn keep(name: &str, kept: impl Fn(&Path) -> bool) {
    let Some(path) = std::env::var_os(name) else { return };
    let others = std::env::split_paths(&path).filter(|entry| kept(entry));
    match std::env::join_paths(others) {
        // SAFETY: nothing but the main thread exists yet.
        Ok(others) if !others.is_empty() => unsafe { std::env::set_var(name, others) },
        // SAFETY: as above.
        _ => unsafe { std::env::remove_var(name) },
    }
}

/// Whether a program of this name would be found.
pub(crate) fn in_path(program: &str) -> bool {
    find_in_path(OsStr::new(program)).is_some()
}

/// The file of a program: one that is named by its path, or the first of `PATH`.
pub(crate) fn find_in_path(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A search path with our folder first, once. An empty one is none: to the loader, an empty entry
/// is the current folder.
fn in_front(ours: &OsStr, others: Option<OsString>) -> OsString {
    let mut path = ours.to_owned();
    if let Some(others) = others.as_ref().filter(|others| {
        let rest = others.as_bytes().strip_prefix(ours.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
    }) {
        return others.clone();
    }
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(given: &[(&str, &str)]) -> BTreeMap<&'static str, OsString> {
        let find = |name: &str| {
            given.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        variables(find, Path::new("/lib/client"), Some(Path::new("/lib/python")))
    }

    #[test]
    fn an_empty_environment_gets_everything() {
        let wanted = [
            ("LD_LIBRARY_PATH", "/lib/client"),
            ("PYTHONPATH", "/lib/python"),
            ("TRITON_LIBCUDA_PATH", "/lib/client"),
        ];
        let wanted: BTreeMap<&str, OsString> =
            wanted.iter().map(|(name, value)| (*name, value.into())).collect();
        assert_eq!(with(&[]), wanted);
        assert_eq!(with(&[("LD_LIBRARY_PATH", ""), ("PYTHONPATH", "")]), wanted);
    }

    #[test]
    fn paths_are_kept_behind_ours() {
        let variables = with(&[("LD_LIBRARY_PATH", "/a:/b"), ("PYTHONPATH", "/c")]);
        assert_eq!(variables["LD_LIBRARY_PATH"], "/lib/client:/a:/b");
        assert_eq!(variables["PYTHONPATH"], "/lib/python:/c");
    }

    #[test]
    fn what_the_user_set_stays() {
        assert!(!with(&[("TRITON_LIBCUDA_PATH", "/mine")]).contains_key("TRITON_LIBCUDA_PATH"));
        // Set to nothing is set.
        assert!(!with(&[("TRITON_LIBCUDA_PATH", "")]).contains_key("TRITON_LIBCUDA_PATH"));
    }

    #[test]
    fn a_second_time_changes_nothing() {
        let once = [("LD_LIBRARY_PATH", "/lib/client:/a"), ("PYTHONPATH", "/lib/python")];
        let twice = with(&once);
        assert!(once.iter().all(|(name, value)| twice[name] == *value), "{twice:?}");
        // A folder whose name begins as ours does is another one.
        assert_eq!(
            with(&[("LD_LIBRARY_PATH", "/lib/client2")])["LD_LIBRARY_PATH"],
            "/lib/client:/lib/client2"
        );
        // Values that were set for the software device are ours, too.
        assert_eq!(
            with(&[("TRITON_LIBCUDA_PATH", "/lib/cpu")])["TRITON_LIBCUDA_PATH"],
            "/lib/client"
        );
    }

    #[test]
    fn an_environment_to_come_keeps_its_paths() {
        let wanted = [
            ("LD_LIBRARY_PATH", How::InFront, "/lib/client"),
            ("PYTHONPATH", How::InFront, "/lib/python"),
            ("TRITON_LIBCUDA_PATH", How::UnlessSet, "/lib/client"),
        ];
        let wanted = wanted.map(|(name, how, value)| (name, how, OsString::from(value)));
        assert_eq!(rules(Path::new("/lib/client"), Some(Path::new("/lib/python"))), wanted);
    }

    #[test]
    fn stand_ins_come_before_what_packages_bring() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let [nccl, cufile] = STAND_INS.map(|(file, _)| folder.join(file));
        let with = |given: &[(&str, &str)]| {
            let find = |name: &str| {
                given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            variables(find, folder, None).remove(FIRST)
        };
        std::fs::write(&nccl, "").unwrap();
        let ours = nccl.to_str().unwrap();
        assert_eq!(with(&[]).unwrap(), ours);
        let both = format!("{ours}:/a.so");
        assert_eq!(with(&[(FIRST, "/a.so")]).unwrap(), both.as_str());
        assert_eq!(with(&[(FIRST, &both)]).unwrap(), both.as_str());
        assert_eq!(with(&[("OUTBOARD_NCCL", "on")]).unwrap(), ours);
        assert!(with(&[("OUTBOARD_NCCL", "off")]).is_none());
        std::fs::write(&cufile, "").unwrap();
        let all = format!("{ours}:{}", cufile.display());
        assert_eq!(with(&[]).unwrap(), all.as_str());
        let others = format!("{all}:/a.so");
        assert_eq!(with(&[(FIRST, &others)]).unwrap(), others.as_str());
        assert_eq!(with(&[("OUTBOARD_CUFILE", "off")]).unwrap(), ours);
        assert_eq!(with(&[("OUTBOARD_NCCL", "off")]).unwrap(), cufile.as_os_str());
    }

    #[test]
    fn without_modules_python_is_left_alone() {
        assert!(!variables(|_| None, Path::new("/lib/cpu"), None).contains_key("PYTHONPATH"));
    }
}
