//! Where Jupyter looks for kernels.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use outboard_wire::Code;

use crate::failure::Failure;

/// In which place a kernel is.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Place {
    /// This user's kernels, for all of the user's environments; what is done without --prefix.
    #[arg(long, conflicts_with = "prefix", help_heading = "Kernel")]
    user: bool,
    /// The kernels of an environment: PREFIX/share/jupyter/kernels, such as `--prefix
    /// "$VIRTUAL_ENV"`, or /usr/local for all users.
    #[arg(long, help_heading = "Kernel")]
    prefix: Option<PathBuf>,
}

impl Place {
    /// The folder for a new kernel's folder.
    pub(super) fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(prefix) = &self.prefix {
            return std::path::absolute(below(prefix))
                .map_err(|error| Failure::file("find", prefix, &error));
        }
        users(|name| std::env::var_os(name)).ok_or_else(|| {
            let help = "name a place with --prefix, or set HOME";
            Failure::new(Code::FileUnusable, "this user has no folder for kernels", help)
        })
    }

    /// The folders that are looked through: the named one, or all that Jupyter knows.
    pub(super) fn searched(&self) -> Result<Vec<PathBuf>, Failure> {
        if self.user || self.prefix.is_some() {
            return Ok(vec![self.folder()?]);
        }
        Ok(all(|name| std::env::var_os(name)))
    }
}

fn below(prefix: &Path) -> PathBuf {
    prefix.join("share/jupyter/kernels")
}

/// The user's folder of kernels.
fn users(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("JUPYTER_DATA_DIR").or_else(|| {
        let shared = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
        Some(shared?.join("jupyter"))
    });
    data.filter(|folder| folder.is_absolute()).map(|data| data.join("kernels"))
}

/// All folders of kernels: those that `JUPYTER_PATH` names, the user's, the environment's and the
/// system's.
fn all(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let named = variable("JUPYTER_PATH").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|folder| folder.is_absolute());
    let mut all: Vec<PathBuf> = named.map(|folder| folder.join("kernels")).collect();
    all.extend(users(&variable));
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(&variable);
    let prefixes = environments.chain(["/usr/local", "/usr"].map(OsString::from));
    all.extend(prefixes.map(|prefix| below(Path::new(&prefix))));
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|folder| seen.insert(folder.clone()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(given: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn the_user_s_folder_is_where_jupyter_has_it() {
        let of = |given: &[(&str, &str)]| users(with(given));
        let folder = |text: &str| Some(PathBuf::from(text));
        assert_eq!(of(&[("HOME", "/h")]), folder("/h/.local/share/jupyter/kernels"));
        let more = [("HOME", "/h"), ("XDG_DATA_HOME", "/x"), ("JUPYTER_DATA_DIR", "")];
        assert_eq!(of(&more), folder("/x/jupyter/kernels"));
        assert_eq!(of(&[("JUPYTER_DATA_DIR", "/j")]), folder("/j/kernels"));
        assert_eq!((of(&[]), of(&[("HOME", "h")])), (None, None));
    }

    #[test]
    fn every_place_is_looked_at_once() {
        let given = [("JUPYTER_PATH", "/a:b:/a"), ("HOME", "/h"), ("VIRTUAL_ENV", "/usr")];
        let wanted = [
            "/a/kernels",
            "/h/.local/share/jupyter/kernels",
            "/usr/share/jupyter/kernels",
            "/usr/local/share/jupyter/kernels",
        ];
        assert_eq!(all(with(&given)), wanted.map(PathBuf::from));
    }
}
