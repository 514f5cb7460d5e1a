//! Asks the broker of a pool, over HTTPS: what servers, the command and tests have in common. If
//! the pool has several brokers, whichever leads.

#![forbid(unsafe_code)]

mod address;
mod asked;
mod connect;
mod settings;

pub use address::{BadUrl, DEFAULT_PORT, Url, Urls};
pub use asked::{AskError, Blocking, Broker, Connection, Method};
pub use connect::Access;
pub use settings::{Settings, SettingsError, VARIABLE};
