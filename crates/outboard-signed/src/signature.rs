//! Signatures beside a manifest: a line for each key, with the public key and the signature.

use crate::keys::{PublicKey, SigningKey};
use crate::manifest::{BadManifest, Manifest};
use crate::{MOST_TEXT, hex};

/// The most signatures that are looked at.
const MOST_SIGNATURES: usize = 16;

/// Why a manifest is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// The client trusts nobody.
    #[error("no release key is known here")]
    NoKeys,
    /// None of those who have signed is trusted.
    #[error("none of the {0} keys that have signed it is trusted here")]
    OtherKeys(usize),
    /// It has no signature that can be read.
    #[error("it is not signed")]
    Unsigned,
    /// It is not what was signed.
    #[error("its signature by the release key {0} does not hold: it was changed")]
    Changed(PublicKey),
    /// What was signed is none.
    #[error("the manifest is not valid: {0}")]
    Manifest(#[from] BadManifest),
}

/// The line with a key's signature of a manifest.
pub fn sign(manifest: &Manifest, key: &SigningKey) -> String {
    let signature = key.sign(manifest.to_string().as_bytes());
    format!("{} {}\n", key.public(), hex::text(&signature))
}

/// Reads a manifest, if a trusted key has signed it.
///
/// # Errors
/// [`NotTrusted`] says why it is not believed.
pub fn verify(
    manifest: &[u8],
    signatures: &str,
    trusted: &[PublicKey],
) -> Result<Manifest, NotTrusted> {
    if trusted.is_empty() {
        return Err(NotTrusted::NoKeys);
    }
    if manifest.len() > MOST_TEXT || signatures.len() > MOST_TEXT {
        return Err(BadManifest::TooLong.into());
    }
    let lines = signatures.lines().filter_map(|line| {
        let (key, signature) = line.split_once(' ')?;
        Some((key.parse::<PublicKey>().ok()?, hex::bytes::<64>(signature)?))
    });
    let all: Vec<_> = lines.take(MOST_SIGNATURES).collect();
    if all.is_empty() {
        return Err(NotTrusted::Unsigned);
    }
    let by_trusted: Vec<_> = all.iter().filter(|(key, _)| trusted.contains(key)).collect();
    let Some((key, _)) = by_trusted.first() else {
        return Err(NotTrusted::OtherKeys(all.len()));
    };
    if !by_trusted.iter().any(|(key, signature)| key.has_signed(manifest, signature)) {
        return Err(NotTrusted::Changed(*key));
    }
    Ok(Manifest::parse(manifest)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::File;

    fn manifest(size: u64) -> Manifest {
        let file = File { name: "libcuda.so.1".into(), size, sha256: [7; 32] };
        let release = semver::Version::new(0, 2, 0);
        Manifest { release, architecture: "x86_64".into(), files: vec![file] }
    }

    fn key() -> SigningKey {
        SigningKey::generate().unwrap()
    }

    #[test]
    fn what_a_trusted_key_has_signed_is_believed() {
        let (mine, other) = (key(), key());
        let kept = SigningKey::from_text(&mine.to_secret_text()).unwrap();
        assert_eq!(kept.public(), mine.public());
        let text = manifest(1).to_string();
        let both = sign(&manifest(1), &other) + &sign(&manifest(1), &kept);
        assert_eq!(verify(text.as_bytes(), &both, &[mine.public()]), Ok(manifest(1)));
    }

    #[test]
    fn nothing_else_is() {
        let (mine, other) = (key(), key());
        let text = manifest(1).to_string();
        let verify = |signatures: &str, trusted: &[PublicKey]| {
            verify(text.as_bytes(), signatures, trusted).unwrap_err()
        };
        let good = sign(&manifest(1), &mine);
        let trusted = [mine.public()];
        assert_eq!(verify(&good, &[]), NotTrusted::NoKeys);
        for none in ["", "\n", "signed by me", &good[..good.len() - 3]] {
            assert_eq!(verify(none, &trusted), NotTrusted::Unsigned, "{none}");
        }
        assert_eq!(verify(&sign(&manifest(1), &other), &trusted), NotTrusted::OtherKeys(1));
        // Another manifest's signature, and another key's under this one's name.
        let of_another = sign(&manifest(2), &mine);
        assert_eq!(verify(&of_another, &trusted), NotTrusted::Changed(mine.public()));
        let lie = sign(&manifest(1), &other)
            .replace(&other.public().to_string(), &mine.public().to_string());
        assert_eq!(verify(&lie, &trusted), NotTrusted::Changed(mine.public()));
    }

    #[test]
    fn what_is_signed_and_no_manifest_is_refused() {
        let mine = key();
        let text = "outboard lease 1\n";
        let signed = format!("{} {}\n", mine.public(), hex::text(&mine.sign(text.as_bytes())));
        let refused = verify(text.as_bytes(), &signed, &[mine.public()]);
        assert_eq!(refused, Err(NotTrusted::Manifest(BadManifest::Head)));
    }

    #[test]
    fn keys_are_texts() {
        let text = format!("# the project's\n\n{}\n", key().public());
        assert_eq!(PublicKey::all_of(&text).unwrap().len(), 1);
        assert!(PublicKey::all_of("# none yet\n").unwrap().is_empty());
        assert!(PublicKey::all_of("abc").is_err());
        assert!(SigningKey::from_text("").is_err());
    }
}
