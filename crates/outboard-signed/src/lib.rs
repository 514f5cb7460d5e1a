//! What a server hands out to run in a client: the files of the client library, listed in a
//! manifest that a release key has signed. Here are texts and signatures; no files, no sockets.
//!
//! Whoever answers at a server's address may be anybody, and what a client loads is code. So
//! nothing is used of a manifest before [`verify`] has found a signature of a key that the client
//! trusts, and nothing of a file before its length and SHA-256 are those of the manifest.

#![forbid(unsafe_code)]

mod hex;
mod keys;
mod manifest;
mod signature;

pub use keys::{BadKey, PublicKey, SigningKey};
pub use manifest::{BadManifest, File, MOST_BYTES, Manifest, NotFitting, Wanted};
pub use signature::{NotTrusted, sign, verify};

/// The longest manifest, and the longest text of signatures, in bytes.
pub const MOST_TEXT: usize = 64 << 10;
/// The manifest's name in a folder of client libraries.
pub const MANIFEST: &str = "client.manifest";
/// The name of its signatures.
pub const SIGNATURES: &str = "client.manifest.sig";
