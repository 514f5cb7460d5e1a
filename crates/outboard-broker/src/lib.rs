//! The broker of a pool: it knows servers and leases, and says who gets which devices.
//!
//! The [`desk`] decides, and does nothing else: no socket, no file, no clock. The [`store`] keeps
//! what it has decided. The `service` lets nobody know of a lease before it is on disk, and `http`
//! lets in who may come.

#![forbid(unsafe_code)]

pub mod desk;
pub mod store;
