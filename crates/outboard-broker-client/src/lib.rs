//! Asks the broker of a pool, over HTTPS: what servers, the command and tests have in common. If
//! the pool has several brokers, whichever leads.

#![forbid(unsafe_code)]

mod address;
mod asked;
mod blocking;
mod connect;
mod error;
mod settings;
mod turns;

pub use address::{BadUrl, DEFAULT_PORT, Url, Urls};
pub use asked::{Broker, Connection, Method, Patience};
pub use blocking::Blocking;
pub use connect::Access;
pub use error::AskError;
pub use settings::{Settings, SettingsError, VARIABLE};
