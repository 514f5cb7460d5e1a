//! The broker without a network: its desk, and what it keeps.

mod desk;
mod store;
mod world;
