//! A server's proof that it has the key to which its name belongs: a statement about what it says,
//! signed by that key.

use super::{CLOCK_TOLERANCE, PublicKey, SigningKey};
use jiff::Timestamp;
use pasetors::token::{Public, UntrustedToken};
use pasetors::version4::{PublicToken, V4};
use serde::{Deserialize, Serialize};

/// Signed with what is said and written nowhere: what the same key signs for another purpose is no
/// proof.
const PURPOSE: &[u8] = b"outboard beat 1\n";

/// The most bytes of a proof.
const LONGEST: usize = 1024;

#[derive(Serialize, Deserialize)]
struct Claims {
    made: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Footer {
    key: String,
}

/// Why a proof is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// Not as it was signed, or of something else.
    #[error("the server's proof of its key is not of what it says")]
    Damaged,
    /// Somebody may repeat what was said long ago.
    #[error(
        "the server's proof of its key was made at {made}, and it is {now} here: clocks may be {} \
         seconds apart; set them",
        CLOCK_TOLERANCE.as_secs()
    )]
    Clocks {
        /// When.
        made: Timestamp,
        /// The broker's time.
        now: Timestamp,
    },
}

fn signed(said: &[u8]) -> Vec<u8> {
    [PURPOSE, said].concat()
}

/// A proof that who has the key says that now. Nothing if the key cannot sign.
#[must_use]
pub fn prove(said: &[u8], key: &SigningKey, now: Timestamp) -> Option<String> {
    let claims = serde_json::to_vec(&Claims { made: now }).ok()?;
    let footer = serde_json::to_vec(&Footer { key: key.public().to_text() }).ok()?;
    PublicToken::sign(&key.secret, &claims, Some(&footer), Some(&signed(said))).ok()
}

/// The key of who says that.
///
/// # Errors
///
/// If the proof is of something else, or of another time.
pub fn proven(proof: &str, said: &[u8], now: Timestamp) -> Result<PublicKey, Unproven> {
    let token = UntrustedToken::<Public, V4>::try_from(proof);
    let token = token.ok().filter(|_| proof.len() <= LONGEST).ok_or(Unproven::Damaged)?;
    let footer: Option<Footer> = serde_json::from_slice(token.untrusted_footer()).ok();
    let key = footer.and_then(|footer| PublicKey::from_text(&footer.key).ok());
    let key = key.ok_or(Unproven::Damaged)?;
    let trusted = PublicToken::verify(&key.0, &token, None, Some(&signed(said)));
    let trusted = trusted.map_err(|_| Unproven::Damaged)?;
    let claims: Claims = serde_json::from_str(trusted.payload()).map_err(|_| Unproven::Damaged)?;
    let made = claims.made;
    if now.duration_since(made).abs() > CLOCK_TOLERANCE {
        return Err(Unproven::Clocks { made, now });
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::super::{PublicKeys, authentic};
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn a_proof_is_of_one_key_one_text_and_one_time() {
        let key = SigningKey::generate().expect("there is randomness");
        let now = Timestamp::from_second(1_800_000_000).expect("it is a time");
        let proof = prove(b"said", &key, now).expect("it signs");
        let who = |proof: &str, said: &[u8], late: i64| {
            proven(proof, said, now + SignedDuration::from_secs(late)).map(|key| key.to_text())
        };
        assert_eq!(who(&proof, b"said", 30), Ok(key.public().to_text()));
        assert_eq!(who(&proof, b"said otherwise", 0), Err(Unproven::Damaged));
        for late in [-31, 31] {
            assert!(matches!(who(&proof, b"said", late), Err(Unproven::Clocks { .. })));
        }
        for wrong in ["", "v4.public.", &proof[..proof.len() - 4], &"x".repeat(4096)] {
            assert_eq!(who(wrong, b"said", 0), Err(Unproven::Damaged), "{wrong}");
        }
        // Another's key does not make it another's.
        let other = SigningKey::generate().expect("there is randomness");
        let others = prove(b"said", &other, now).expect("it signs");
        let (signed, _) = proof.rsplit_once('.').expect("it has a footer");
        let (_, footer) = others.rsplit_once('.').expect("it has a footer");
        assert_eq!(who(&format!("{signed}.{footer}"), b"said", 0), Err(Unproven::Damaged));
        // Nor is it a lease, whoever believes the key.
        let keys: PublicKeys = [key.public().clone()].into_iter().collect();
        assert!(authentic(&proof, &keys).is_err());
    }
}
