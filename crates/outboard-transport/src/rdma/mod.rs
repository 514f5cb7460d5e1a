//! Streams over a reliable connection between two RDMA adapters.
//!
//! Client and server meet over another stream, which stays open: over it they tell each other what
//! connects them ([`move_to`], [`take_up`]), and its end tells that the peer is gone.
//!
//! - *Client to server*: sends into receives that the server has posted, each with a slot of the
//!   server's own memory.
//! - *Server to client*: remote writes into a ring of the client's memory, each with a number that
//!   tells the client of it. So no client ever holds a key to a server's memory.
//! - *Credits*: a side has at most [`Settings::depth`] messages under way that the other one has
//!   not used up. Every message says how many of the peer's were ([`immediate`]); a side that has
//!   nothing to send says so in a message without bytes.
//! - *Waiting*: a read looks into memory only ([`Capabilities::quick`](crate::Capabilities)), so
//!   callers spin first, as on shared memory. Then the adapter's completion queue makes a
//!   descriptor readable.

mod adapters;
mod description;
pub mod direct;
mod handing;
mod immediate;
mod incoming;
mod nearness;
mod outgoing;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use adapters::{Allowed, Port, has_adapters, load, nearest_ways};
pub use handing::{move_to, take_up};
pub use outboard_rdma::Mtu;
pub use settings::{CONNECTIONS, Settings};
