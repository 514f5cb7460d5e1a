//! `outboard library`: keys that sign client libraries, and signatures.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use miette::Result;
use outboard_signed::{MANIFEST, Manifest, SIGNATURES, SigningKey, sign};
use outboard_wire::Code;
use ring::digest::{Context, SHA256};
use semver::Version;

use super::cache::Hash;
use super::own;
use crate::config::store;
use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a key that signs client libraries. The file is secret; the printed line is what others
    /// put into `release-keys`.
    Key {
        /// The new file.
        file: PathBuf,
    },
    /// List the files of a folder of client libraries in a manifest there, and sign it.
    Sign {
        /// The file of the key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The release that the files belong to, if it is not this command's.
        #[arg(long, value_name = "VERSION")]
        release: Option<Version>,
        /// The processor that they are for, as Rust names it, if it is not this machine's.
        #[arg(long, value_name = "NAME", default_value = std::env::consts::ARCH)]
        architecture: String,
        /// The folder, such as lib/outboard/client of an installation.
        folder: PathBuf,
    },
}

pub(crate) fn library(args: Args) -> Result<()> {
    let public = match args.action {
        Action::Key { file } => make_key(&file)?,
        Action::Sign { key, release, architecture, folder } => {
            let key = read_key(&key)?;
            let release = release.unwrap_or_else(own);
            sign_folder(&folder, release, architecture, &key)?;
            key
        }
    };
    crate::output::print(&format!("{}\n", public.public()))
}

fn make_key(path: &Path) -> Result<SigningKey, Failure> {
    let failed = |error: &io::Error| Failure::file("write", path, error);
    let key = SigningKey::generate()
        .map_err(|error| Failure::new(Code::FileUnusable, error.to_string(), "try again"))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).map_err(|error| failed(&error))?;
    let text = key.to_secret_text() + "\n";
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|e| failed(&e))?;
    Ok(key)
}

fn read_key(path: &Path) -> Result<SigningKey, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    SigningKey::from_text(&text).map_err(|error| {
        let sentence = format!("{} is no signing key: {error}", path.display());
        Failure::new(Code::FileUnusable, sentence, "`outboard library key FILE` makes one")
    })
}

fn sign_folder(
    folder: &Path,
    release: Version,
    architecture: String,
    key: &SigningKey,
) -> Result<(), Failure> {
    let files = files(folder).map_err(|error| Failure::file("read", folder, &error))?;
    let manifest = Manifest { release, architecture, files }.checked().map_err(|error| {
        let sentence = format!("{} cannot be signed: {error}", folder.display());
        Failure::new(Code::FileUnusable, sentence, "name a folder with client libraries alone")
    })?;
    for (name, text) in [(MANIFEST, manifest.to_string()), (SIGNATURES, sign(&manifest, key))] {
        let path = folder.join(name);
        store::output(&path, &text)?;
    }
    Ok(())
}

/// The files of a folder, but for links and what is written here.
fn files(folder: &Path) -> io::Result<Vec<outboard_signed::File>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_file() || [MANIFEST, SIGNATURES].contains(&name.as_str()) {
            continue;
        }
        let mut hash = Hash(Context::new(&SHA256));
        let size = io::copy(&mut File::open(entry.path())?, &mut hash)?;
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(hash.0.finish().as_ref());
        files.push(outboard_signed::File { name, size, sha256 });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}
