//! The driver library's client half: shadow state and the connection to a server.

mod arena;
mod copies;
#[cfg(fuzzing)]
pub mod fuzzing;
mod graphs;
mod host;
mod host_calls;
pub mod invitation;
mod kernels;
pub mod link;
mod mapped_file;
mod outstanding;
pub mod own_settings;
mod pager;
mod process;
mod progress;
mod query;
mod remote;
mod requests;
mod reuse;
mod servers;
mod session;
mod slabs;
mod speech;
pub mod target;
mod times;
mod tokens;
mod wanted;
mod windows;

pub use query::{Query, QueryError};
pub use remote::Remote;
pub use session::LOST;
pub use wanted::of_this_process;
