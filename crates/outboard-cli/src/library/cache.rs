//! Client libraries that are kept: a folder for each manifest, named by its hash.
//!
//! A folder gets its name when all of it is there, and is compared with the manifest at each use.
//! So processes may fetch the same library at once: the first one's folder stays.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outboard_signed::Manifest;
use outboard_wire::Code;
use ring::digest::{Context, SHA256, digest};

use crate::failure::Failure;
use crate::folders::caches;

/// What a fetch that was killed has left goes after this time.
const LEFT_OVER: Duration = Duration::from_secs(3600);
const BEGUN: &str = ".new-";

/// Where they are.
fn usual() -> Option<PathBuf> {
    Some(caches(|name| std::env::var_os(name))?.join("outboard/libraries"))
}

/// Whether a folder is one of those.
pub(crate) fn is_kept(folder: &Path) -> bool {
    folder.parent().is_some_and(|above| usual().as_deref() == Some(above))
}

/// The folder with a manifest's files; `fetch` writes those that are not there.
pub(super) fn folder_of(
    manifest: &Manifest,
    text: &[u8],
    fetch: impl Fn(&outboard_signed::File, &mut File) -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    let all = usual().ok_or_else(|| {
        let help = "set XDG_CACHE_HOME to a folder of this user";
        Failure::new(Code::FileUnusable, "there is no folder for caches", help)
    })?;
    make_private(&all)?;
    remove_left_over(&all);
    let hash = digest(&SHA256, text);
    let name: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = all.join(name);
    if is_whole(&folder, manifest) {
        return Ok(folder);
    }
    let begun = all.join(format!("{BEGUN}{}", std::process::id()));
    let filled = fill(&begun, manifest, &fetch).and_then(|()| put(&begun, &folder, manifest));
    // It has got its name, or nobody needs it.
    let _ = fs::remove_dir_all(&begun);
    filled.map(|()| folder)
}

/// Makes a folder that nobody else writes to, or checks that it is one: what is in it is run.
fn make_private(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file("make", folder, &error))?;
    let about = fs::symlink_metadata(folder);
    let about = about.map_err(|error| Failure::file("look at", folder, &error))?;
    if about.is_dir() && about.uid() == crate::folders::own_user() && about.mode() & 0o022 == 0 {
        return Ok(());
    }
    let sentence =
        format!("{} could have been changed by other users of this machine", folder.display());
    let help = "remove it, or have it belong to you and be writable by nobody else: `chmod 700`";
    Err(Failure::new(Code::FileUnusable, sentence, help))
}

fn remove_left_over(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|about| about.modified());
        let is_old = age.is_ok_and(|age| age.elapsed().is_ok_and(|age| age > LEFT_OVER));
        if is_old && entry.file_name().to_string_lossy().starts_with(BEGUN) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn fill(
    begun: &Path,
    manifest: &Manifest,
    fetch: &impl Fn(&outboard_signed::File, &mut File) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let unusable = |what: &str, path: &Path| {
        let (what, path) = (what.to_owned(), path.to_owned());
        move |error: io::Error| Failure::file(&what, &path, &error)
    };
    let _ = fs::remove_dir_all(begun);
    DirBuilder::new().mode(0o700).create(begun).map_err(unusable("make", begun))?;
    for file in &manifest.files {
        let path = begun.join(&file.name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o500);
        let mut to = options.open(&path).map_err(unusable("write", &path))?;
        fetch(file, &mut to)?;
    }
    for (link, target) in links(manifest) {
        symlink(target, begun.join(link)).map_err(unusable("make links in", begun))?;
    }
    Ok(())
}

/// Gives a folder its name. One that has it and is not whole goes; a whole one stays.
fn put(begun: &Path, folder: &Path, manifest: &Manifest) -> Result<(), Failure> {
    for _ in 0..2 {
        match fs::rename(begun, folder) {
            Ok(()) => return Ok(()),
            Err(_) if is_whole(folder, manifest) => return Ok(()),
            Err(_) if fs::symlink_metadata(folder).is_ok() => {
                eprintln!(
                    "outboard: the kept client library in {} was changed; it is replaced",
                    folder.display()
                );
                let removed = fs::remove_dir_all(folder).or_else(|_| fs::remove_file(folder));
                removed.map_err(|error| Failure::file("remove", folder, &error))?;
            }
            Err(error) => return Err(Failure::file("make", folder, &error)),
        }
    }
    let error = io::ErrorKind::AlreadyExists.into();
    Err(Failure::file("make", folder, &error))
}

/// The names by which linkers look for libraries: `libcuda.so` for `libcuda.so.1`.
fn links(manifest: &Manifest) -> Vec<(&str, &str)> {
    let link = |name: &'_ str| -> Option<usize> {
        let (library, version) = name.rsplit_once('.')?;
        let is_versioned = library.ends_with(".so") && version.parse::<u32>().is_ok();
        is_versioned.then_some(library.len())
    };
    let names = manifest.files.iter().map(|file| file.name.as_str());
    let links = names.filter_map(|name| Some((&name[..link(name)?], name)));
    links.filter(|(link, _)| !manifest.files.iter().any(|file| file.name == *link)).collect()
}

/// Whether a folder has a manifest's files, its links and nothing else.
fn is_whole(folder: &Path, manifest: &Manifest) -> bool {
    let links = links(manifest);
    let count = fs::read_dir(folder).map(Iterator::count);
    let about = fs::symlink_metadata(folder);
    count.is_ok_and(|count| count == manifest.files.len() + links.len())
        && about.is_ok_and(|about| about.is_dir() && about.mode() & 0o022 == 0)
        && manifest.files.iter().all(|file| is_file(&folder.join(&file.name), file))
        && links.iter().all(|(link, target)| {
            fs::read_link(folder.join(link)).is_ok_and(|found| found == Path::new(target))
        })
}

fn is_file(path: &Path, file: &outboard_signed::File) -> bool {
    let same = || -> io::Result<bool> {
        if !fs::symlink_metadata(path)?.is_file() {
            return Ok(false);
        }
        let mut hash = Hash(Context::new(&SHA256));
        let bytes = io::copy(&mut File::open(path)?, &mut hash)?;
        Ok(bytes == file.size && hash.0.finish().as_ref() == file.sha256)
    };
    same().unwrap_or(false)
}

/// What is written to it is hashed.
pub(super) struct Hash(pub(super) Context);

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
