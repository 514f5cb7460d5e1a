//! The broker without a network of its own: its desk, and what it keeps.

mod desk;
mod ends;
mod etcd;
mod holds;
mod jobs;
mod names;
mod pages;
mod places;
mod store;
mod world;
