//! The keys whose signatures count.

use outboard_signed::PublicKey;
use outboard_wire::Code;

use super::settings::{self, KEYS};
use crate::failure::Failure;

/// Those of the project.
const BUILT_IN: &str = include_str!("../../../../packaging/release-key.pub");

/// The keys of this build and those that the person names; at least one.
pub(super) fn trusted() -> Result<Vec<PublicKey>, Failure> {
    let mut keys = PublicKey::all_of(BUILT_IN).expect("a test reads them");
    let named = std::env::var(KEYS).unwrap_or_default();
    keys.extend(settings::keys(&named).map_err(|error| {
        let help = "`outboard library sign` prints the key by which it has signed";
        Failure::new(Code::BadConfiguration, format!("{KEYS}: {error}"), help)
    })?);
    if keys.is_empty() {
        let help = "install the server's release on this machine; or, if whoever has signed the library has told you the key, name it by `release-keys` in the configuration";
        return Err(Failure::new(
            Code::LibraryNotTrusted,
            "no release key is known here: this build has none, and none is configured",
            help,
        ));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_this_build_can_be_read() {
        assert!(PublicKey::all_of(BUILT_IN).is_ok());
    }
}
