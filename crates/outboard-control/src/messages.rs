//! What supervisor and worker say to each other, over a socket pair that keeps messages apart. The
//! worker finds its end as standard input. The messages are described in `api/control.toml`.

mod socket;
#[cfg(test)]
mod tests;

pub use crate::generated::messages::*;
pub use socket::{LONGEST, has_gone, pair, receive, receive_with, send, send_patiently};
