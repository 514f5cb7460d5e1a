//! The end-to-end tests that are one program, so that they are linked once: each file of this
//! folder that is no program of its own is a module of it.
//!
//! `cargo xtask test` runs each of them in a process of its own, or a module in a process where its
//! tests must not run beside others. By hand: `cargo test -p outboard-e2e --test all MODULE::`.

#[path = "../../../crates/outboard-supervisor/tests/serving/proxy.rs"]
#[allow(dead_code)]
mod proxy;

mod auth;
mod away;
mod beats;
mod bench;
mod brokers;
mod brokers_break;
mod client_library;
mod collectives;
mod collectives_apart;
mod collectives_nccl;
mod collectives_network;
mod command;
mod common_memory;
mod compatibility;
mod confined;
mod contexts;
mod copies;
mod credit;
mod crossing_graphs;
mod cupti;
mod daily;
mod death;
mod doctor;
mod environment;
mod faults;
mod files;
mod first_page;
mod handles;
mod hostile;
mod hostile_client;
mod hostile_lease;
mod hostile_pool;
mod hostile_server;
mod hostile_sessions;
mod hostile_strangers;
mod hostile_wire;
mod hostile_words;
mod images;
mod ivshmem;
mod ktls;
mod lease;
mod library;
mod limits;
mod links;
mod links_in_memory;
mod load;
mod local;
mod mappings;
mod metrics;
mod mpi;
mod mpi_messages;
mod network;
mod nfs;
mod no_ptx;
mod nvml;
mod old_driver;
mod own_settings;
mod packaging;
mod pages;
mod pool;
mod pool_page;
mod pool_reload;
mod pool_servers;
mod pool_top;
mod questions;
mod ranks;
mod rdma;
mod releases;
mod rendezvous;
mod rest;
mod seeing;
mod servers;
mod servers_away;
mod settings;
mod several_start;
mod shared_files;
mod sharing;
mod soak;
mod speed;
mod ssh;
mod standing;
mod steps;
mod traces;
mod visible;
mod vsock;
mod warm;
mod windows;
