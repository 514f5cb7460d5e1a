//! Keys of Ed25519, as texts of 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::hex;

/// A text is no key, or there is none to make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// It is something else.
    #[error("a key is 64 hexadecimal digits")]
    NotDigits,
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
}

/// By which signatures are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The keys in a text, one a line; empty lines and those behind `#` are none.
    ///
    /// # Errors
    /// [`BadKey`] if another line is no key.
    pub fn all_of(text: &str) -> Result<Vec<PublicKey>, BadKey> {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::parse).collect()
    }

    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<PublicKey, BadKey> {
        hex::bytes(text).map(PublicKey).ok_or(BadKey::NotDigits)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::text(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// By which a release is signed. Secret.
pub struct SigningKey {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// A new one.
    ///
    /// # Errors
    /// [`BadKey::NoRandom`] if the system gives no random numbers.
    pub fn generate() -> Result<SigningKey, BadKey> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| BadKey::NoRandom)?;
        SigningKey::of(seed)
    }

    fn of(seed: [u8; 32]) -> Result<SigningKey, BadKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| BadKey::NotDigits)?;
        Ok(SigningKey { seed, pair })
    }

    /// The one in a text.
    ///
    /// # Errors
    /// [`BadKey::NotDigits`] if it is none.
    pub fn from_text(text: &str) -> Result<SigningKey, BadKey> {
        SigningKey::of(hex::bytes(text.trim()).ok_or(BadKey::NotDigits)?)
    }

    /// The text that keeps it.
    pub fn to_secret_text(&self) -> String {
        hex::text(&self.seed)
    }

    /// What others recognise its signatures by.
    pub fn public(&self) -> PublicKey {
        let mut public = [0; 32];
        public.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(public)
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public()).finish_non_exhaustive()
    }
}
