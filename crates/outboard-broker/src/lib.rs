//! The broker of a pool: it knows servers and leases, and says who gets which devices.
//!
//! The [`desk`] decides, and does nothing else: no socket, no file, no clock. The [`store`] keeps
//! what it has decided. The `service` lets nobody know of a lease before it is on disk, and `http`
//! lets in who may come.

#![forbid(unsafe_code)]

pub mod desk;
mod http;
mod metrics;
mod open;
pub mod quotas;
mod roles;
mod run;
mod service;
pub mod store;

pub use http::Security;
pub use run::{BrokerError, Config, run};
