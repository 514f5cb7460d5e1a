//! The client library of a server's release: taken from the server if a release key has signed it,
//! kept by its hash, and put in the place of this installation's.
//!
//! What comes here runs in the person's programs, so nothing that proves who a server is suffices:
//! neither certificate nor token. Only keys that this build or the person names count.

mod cache;
mod fetch;
mod keys;
pub(crate) mod settings;
mod sign;

use std::path::PathBuf;

use outboard_client::target::Target;
use outboard_signed::{MANIFEST, Manifest, NotFitting, SIGNATURES, Wanted, verify};
use outboard_wire::Code;
use semver::Version;

pub(crate) use cache::is_kept;
use settings::{OLDEST, WHEN, WHENS};
pub(crate) use sign::{Args, library};

use crate::at_once::at_once;
use crate::failure::Failure;
use crate::probe::{self, Offer};

/// What every client library has.
const DRIVER: &str = "libcuda.so.1";

const OWN: &str = env!("CARGO_PKG_VERSION");

/// The folder with the library for a program with these servers; none if it uses this
/// installation's. `asked` is whether the command line asks for the server's, if releases differ.
pub(crate) fn of_servers(asked: bool, servers: &[Target]) -> Result<Option<PathBuf>, Failure> {
    let set = std::env::var(WHEN).unwrap_or_else(|_| "off".into());
    let is_always = set == "always";
    if !WHENS.contains(&set.as_str()) {
        let sentence = format!("{WHEN} is `{set}`");
        return Err(Failure::new(
            Code::BadConfiguration,
            sentence,
            format!("it is one of {}", WHENS.join(", ")),
        ));
    }
    if set == "off" && !asked {
        return Ok(None);
    }
    let offers: Vec<Offer> =
        at_once(servers, probe::probe).into_iter().collect::<Result<_, _>>()?;
    if !is_always && offers.iter().all(|offer| offer.software == OWN) {
        return Ok(None);
    }
    let mut all = servers.iter().zip(&offers).map(|(server, offer)| Library::of(server, offer));
    let Some(first) = all.next().transpose()? else { return Ok(None) };
    for other in all {
        first.expect_same(&other?)?;
    }
    let fetch = |file: &_, to: &mut _| fetch::file(first.server, file, to);
    cache::folder_of(&first.manifest, &first.text, fetch).map(Some)
}

/// What a server hands out, signed by a key that is trusted and fit for this machine.
struct Library<'a> {
    server: &'a Target,
    text: Vec<u8>,
    manifest: Manifest,
}

impl<'a> Library<'a> {
    fn of(server: &'a Target, offer: &Offer) -> Result<Library<'a>, Failure> {
        let address = server.address.to_string();
        if offer.protocol < fetch::SINCE {
            let sentence = format!(
                "the server at {address} is of release {}, which hands out no library",
                offer.software
            );
            return Err(Failure::new(Code::NoLibrary, sentence, WITHOUT));
        }
        let trusted = keys::trusted()?;
        let (text, signatures) = (fetch::text(server, MANIFEST)?, fetch::text(server, SIGNATURES)?);
        let signatures = String::from_utf8_lossy(&signatures);
        let manifest = verify(&text, &signatures, &trusted).map_err(|error| {
            Failure::new(
                Code::LibraryNotTrusted,
                format!("the client library that {address} hands out is not used: {error}"),
                "install the server's release on this machine; if you know the key that has signed it, and trust whoever has it, `release-keys` in the configuration names it",
            )
        })?;
        fits(&manifest, &address)?;
        Ok(Library { server, text, manifest })
    }

    /// A program has one library for all its servers.
    fn expect_same(&self, other: &Library<'_>) -> Result<(), Failure> {
        if self.text == other.text {
            return Ok(());
        }
        let sentence = format!(
            "{} and {} hand out different client libraries, and a program can have only one",
            self.server.address, other.server.address
        );
        let help = "have the servers be of one release, or leave out --library-from-server";
        Err(Failure::new(Code::NoLibrary, sentence, help))
    }
}

const WITHOUT: &str =
    "install the server's release on this machine, or leave out --library-from-server";

fn fits(manifest: &Manifest, address: &str) -> Result<(), Failure> {
    let oldest = match std::env::var(OLDEST) {
        Ok(text) => text.parse().map_err(|_| {
            let sentence = format!("{OLDEST} is `{text}`");
            Failure::new(Code::BadConfiguration, sentence, "it is a release, such as 0.1.0")
        })?,
        Err(_) => own(),
    };
    let wanted = Wanted { architecture: std::env::consts::ARCH, oldest: Some(oldest) };
    let help = |error: &NotFitting| match error {
        NotFitting::Architecture { .. } => WITHOUT.to_owned(),
        NotFitting::Older { found, .. } => format!(
            "update the server; if release {found} is meant, `oldest-library = \"{found}\"` in the configuration takes it"
        ),
    };
    let not_used =
        |why: String| format!("the client library that {address} hands out is not used: {why}");
    manifest.check_fit(&wanted).map_err(|error| {
        Failure::new(Code::NoLibrary, not_used(error.to_string()), help(&error))
    })?;
    if !manifest.files.iter().any(|file| file.name == DRIVER) {
        let why = not_used(format!("it has no {DRIVER}"));
        return Err(Failure::new(Code::NoLibrary, why, WITHOUT));
    }
    Ok(())
}

/// The release of this command.
fn own() -> Version {
    OWN.parse().expect("Cargo's versions are versions")
}
