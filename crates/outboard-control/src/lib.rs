//! Supervisor and workers: serves the devices of a driver library to clients.
//!
//! The [`supervisor`] accepts clients and starts one [`worker`] process for each. It never touches
//! a device itself, so that no client can harm more than its own worker.

pub mod admin;
pub mod auth;
mod board;
pub mod cgroup;
mod control;
pub mod identity;
pub mod image_cache;
pub mod logs;
mod meter;
mod number;
pub mod sandbox;
mod sparing;
pub mod supervisor;
pub mod suspend;
mod trace;
pub mod worker;

mod generated {
    pub(crate) mod control;
    pub(crate) mod dispatch;
}
