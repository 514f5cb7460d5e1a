//! The broker of a pool: it knows servers and leases, and says who gets which devices.
//!
//! The [`desk`] decides, and does nothing else: no socket, no file, no clock. The [`store`] keeps
//! what it has decided. The `service` lets nobody know of a lease before it is kept, `front` knows
//! whether this broker leads, and `http` lets in who may come.

#![forbid(unsafe_code)]

pub mod desk;
mod front;
mod http;
mod lead;
mod metrics;
mod open;
pub mod quotas;
mod roles;
mod run;
mod service;
mod signers;
pub mod store;

pub use http::Security;
pub use run::{BrokerError, Config, Shared, run};
