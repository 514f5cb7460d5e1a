//! Which files the server shares with its clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outboard_files::{BadShare, Opener, Share, Terms};
use outboard_supervisor::Config;
use outboard_wire::Code;

use crate::failure::Failure;

/// How long a file system may take for a step of an opening. Clients go on without it then.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Files that clients and this server both have, such as nfs1:/export=/mnt/export: what clients
    /// have mounted, and the folder of this machine that has the same files. The server reads them
    /// itself for clients that show that they can, if every user of this machine may read them.
    /// With `:as=UID:GID` behind it, those that this user may read; with `:rw:as=UID:GID`, it
    /// writes to them as well. May be given several times.
    #[arg(long, value_name = "SOURCE=FOLDER")]
    files: Vec<Share>,
    /// A file with further ones, each a table of TOML: `["nfs1:/export"]` with `folder`, `write`,
    /// `owners` and `users`.
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
}

impl Args {
    pub(crate) fn apply(self, config: &mut Config) -> Result<(), Failure> {
        let mut shares = self.files;
        if let Some(file) = &self.files_from {
            let text = std::fs::read_to_string(file)
                .map_err(|error| Failure::file("read the shared files of", file, &error))?;
            shares.extend(parse(&text, file)?);
        }
        if !shares.is_empty() {
            let opener = Opener::new(shares, LIMIT).map_err(|error| unusable(&error))?;
            config.files = Some(Arc::new(opener));
        }
        Ok(())
    }
}

/// The shares of a file with that text.
fn parse(text: &str, file: &Path) -> Result<Vec<Share>, Failure> {
    let tables: BTreeMap<String, Terms> = toml::from_str(text).map_err(|error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = 1 + before.matches('\n').count();
        let sentence = format!("{}, line {line}: {}", file.display(), error.message());
        Failure::new(Code::BadConfiguration, sentence, HELP)
    })?;
    let shares = tables.into_iter().map(|(source, terms)| Share::new(&source, terms));
    shares.collect::<Result<_, _>>().map_err(|error| unusable(&error))
}

const HELP: &str = "`outboard docs files` shows how files are shared";

fn unusable(error: &BadShare) -> Failure {
    Failure::new(Code::BadConfiguration, error.to_string(), HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_shares() {
        let said = |text| parse(text, Path::new("files.toml"));
        let shares = said(
            "['nfs1:/export']\nfolder = '/mnt/a'\n\n['nfs1:/models']\nfolder = '/mnt/b'\n\
             write = true\nusers = { alice = '1000:100' }\n",
        );
        let shares = shares.unwrap();
        assert_eq!(shares.len(), 2);
        assert!(!shares[0].is_writable() && shares[1].is_writable());
        let wrong = said("['nfs1:/export']\nfolder = '/mnt'\nfold = 1\n").unwrap_err().to_string();
        assert!(wrong.contains("line 3") && wrong.contains("unknown field `fold`"), "{wrong}");
        let wrong = said("['nfs1:/export']\nfolder = 'mnt'\n").unwrap_err().to_string();
        assert!(wrong.contains("whole path"), "{wrong}");
    }
}
