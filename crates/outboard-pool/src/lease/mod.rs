//! A lease: a signed statement of what somebody may use, which a server checks by itself.

mod keys;
mod proof;
mod statement;
mod token;

pub use keys::{BadKey, KeyId, PublicKey, PublicKeys, SigningKey};
pub use proof::{Unproven, prove, proven};
pub use statement::Lease;
pub use token::{CLOCK_TOLERANCE, Denied, NotSigned, TOKEN_LENGTH, authentic, sign, verify};
