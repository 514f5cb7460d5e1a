//! Files that client and server both have: how a client names one, what a server shares, and how a
//! client shows that it can read one.
//!
//! A client sends a [`Reference`] in place of a file's bytes. The server finds the [`Share`] in
//! which such a file lies, opens it beneath the share's folder ([`Opener::open`]), and believes
//! nothing: neither the name, which may lead nowhere else, nor the [`Identity`], which must be what
//! the server finds, nor that the client may read the file. For that, it asks for a hash of blocks
//! that it has chosen ([`Challenge`], [`answer`]), and compares it with its own
//! ([`Opener::check`]).
//!
//! What shows that somebody can read a file is some of its bytes: whoever knows most of a file may
//! be taken for somebody who can read it all. So wrong answers are counted, and who fails meets the
//! same blocks again. A share that names the users of its owners has the kernel decide as well;
//! without users, only files that every user of the machine may read are opened.

#![forbid(unsafe_code)]

mod identity;
mod limits;
mod mounts;
mod name;
mod opener;
mod opening;
mod proof;
mod reference;
mod refused;
mod share;
mod shares;
mod storage;
mod tries;
mod turns;
mod user;

#[cfg(test)]
mod tests;

pub use identity::{Difference, Identity, changed_since};
pub use limits::LONGEST_TEXT;
pub use name::BadName;
pub use opener::{Access, Checked, Opened, Opener, Request};
pub use proof::{BadChallenge, Block, Challenge, LONGEST_BLOCK, MOST_BLOCKS, answer};
pub use reference::{NoReference, Reference};
pub use refused::{Refused, Unopened};
pub use share::{BadShare, Share, Terms};
pub use storage::{forget, is_on_this_machine};
pub use user::{BadUser, User};
