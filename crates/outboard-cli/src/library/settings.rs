//! What the person says of it.

use outboard_signed::{BadKey, PublicKey};

/// Says when a server's library is taken.
pub(crate) const WHEN: &str = "OUTBOARD_LIBRARY_FROM_SERVER";
/// The values of that.
pub(crate) const WHENS: [&str; 3] = ["off", "differing", "always"];
/// Names the oldest release whose library is taken.
pub(crate) const OLDEST: &str = "OUTBOARD_OLDEST_LIBRARY";
/// Names keys besides those of this build.
pub(crate) const KEYS: &str = "OUTBOARD_RELEASE_KEYS";

/// Keys that commas separate.
pub(crate) fn keys(text: &str) -> Result<Vec<PublicKey>, BadKey> {
    text.split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_between_commas() {
        let key = "0a".repeat(32);
        assert_eq!(keys(&format!("{key}, {key},")).unwrap().len(), 2);
        assert!(keys("").unwrap().is_empty());
        assert!(keys("0a").is_err());
    }
}
