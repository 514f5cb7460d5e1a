//! Keys that sign leases, and those that check them. As text they are PASERK's.

use pasetors::keys::{AsymmetricKeyPair, AsymmetricPublicKey, AsymmetricSecretKey, Generate};
use pasetors::paserk::{FormatAsPaserk, Id};
use pasetors::version4::V4;
use std::collections::BTreeMap;
use std::fmt;

/// A text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// Not a secret key.
    #[error("this is no key to sign leases with: such a key begins with k4.secret.")]
    Secret,
    /// Not a public key.
    #[error("this is no key to check leases with: such a key begins with k4.public.")]
    Public,
    /// The system has no randomness.
    #[error("a new key needs randomness, which the system does not give; try again")]
    Random,
}

/// Which key: PASERK's identifier of the public key, so that nobody can give a key another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub(super) String);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn text(key: &dyn FormatAsPaserk) -> String {
    let mut text = String::new();
    key.fmt(&mut text).expect("a string takes everything that is written to it");
    text
}

/// A key that checks leases.
#[derive(Clone)]
pub struct PublicKey(pub(super) AsymmetricPublicKey<V4>);

impl PublicKey {
    /// Reads a key.
    ///
    /// # Errors
    ///
    /// If the text is none.
    pub fn from_text(text: &str) -> Result<PublicKey, BadKey> {
        text.try_into().map(PublicKey).map_err(|_| BadKey::Public)
    }

    /// The key as text, `k4.public.…`.
    #[must_use]
    pub fn to_text(&self) -> String {
        text(&self.0)
    }

    /// Which key it is.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(text(&Id::from(&self.0)))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

/// A key that signs leases: the broker's.
pub struct SigningKey {
    pub(super) secret: AsymmetricSecretKey<V4>,
    public: PublicKey,
}

impl SigningKey {
    /// A new key.
    ///
    /// # Errors
    ///
    /// If the system gives no randomness.
    pub fn generate() -> Result<SigningKey, BadKey> {
        let pair = AsymmetricKeyPair::<V4>::generate().map_err(|_| BadKey::Random)?;
        Ok(SigningKey { secret: pair.secret, public: PublicKey(pair.public) })
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// If the text is none.
    pub fn from_text(text: &str) -> Result<SigningKey, BadKey> {
        let secret: AsymmetricSecretKey<V4> = text.try_into().map_err(|_| BadKey::Secret)?;
        let public = (&secret).try_into().map(PublicKey).map_err(|_| BadKey::Secret)?;
        Ok(SigningKey { secret, public })
    }

    /// The key as text, `k4.secret.…`, for a file that only the broker can read.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        text(&self.secret)
    }

    /// The key by which servers check what this one signs.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id())
    }
}

/// The keys that a server believes. While a broker changes its key there are two.
#[derive(Clone, Debug, Default)]
pub struct PublicKeys(BTreeMap<KeyId, PublicKey>);

impl PublicKeys {
    /// Believes what this key signed.
    pub fn add(&mut self, key: PublicKey) {
        self.0.insert(key.id(), key);
    }

    /// Believes it no longer. Whether it did.
    pub fn remove(&mut self, id: &KeyId) -> bool {
        self.0.remove(id).is_some()
    }

    pub(super) fn get(&self, id: &KeyId) -> Option<&PublicKey> {
        self.0.get(id)
    }
}

impl FromIterator<PublicKey> for PublicKeys {
    fn from_iter<T: IntoIterator<Item = PublicKey>>(keys: T) -> PublicKeys {
        let mut all = PublicKeys::default();
        keys.into_iter().for_each(|key| all.add(key));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = SigningKey::generate().expect("there is randomness");
        let again = SigningKey::from_text(&key.to_secret_text()).expect("it was written so");
        assert_eq!(again.public().to_text(), key.public().to_text());
        let public = PublicKey::from_text(&key.public().to_text()).expect("it was written so");
        assert_eq!(public.id(), key.public().id());
        assert!(public.id().0.starts_with("k4.pid."));
    }

    #[test]
    fn a_secret_is_shown_to_nobody() {
        let key = SigningKey::generate().expect("there is randomness");
        let secret = key.to_secret_text();
        let shown = format!("{key:?}");
        assert!(!shown.contains(secret.trim_start_matches("k4.secret.")), "{shown}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let key = SigningKey::generate().expect("there is randomness");
        let (secret, public) = (key.to_secret_text(), key.public().to_text());
        for wrong in ["", "k4.secret.", "k4.secret.AAAA", &public, &secret[..secret.len() - 1]] {
            assert_eq!(SigningKey::from_text(wrong).err(), Some(BadKey::Secret), "{wrong}");
        }
        for wrong in ["", "k4.public.", "k4.public.AAAA", &secret, &public[..public.len() - 1]] {
            assert_eq!(PublicKey::from_text(wrong).err(), Some(BadKey::Public), "{wrong}");
        }
    }
}
