//! Large copies: page-locked staging slots that the device fills and empties in the application's
//! own stream order.
//!
//! For each group of chunks three operations are queued in the stream at once, before its bytes are
//! there: wait until the slot is full (or free), copy, mark the slot free (or full). The device
//! orders the application's later work in the stream after the copy; the worker holds nothing back,
//! and a blocked stream delays no other. Lane threads and a watcher move the bytes meanwhile.

mod account;
mod area;
mod blocks;
mod deferred;
mod file;
mod incoming;
mod later;
mod line;
mod locking;
mod memory;
mod outgoing;
mod part;
mod passing;
mod peer;
mod place;
mod registered;
mod shared;
mod signals;
mod start;
mod starting;
mod transfer;
mod unqueued;
mod unstaged;
mod watch;
mod watching;

pub(crate) use account::Account;
pub(crate) use area::Area;
pub(crate) use file::{FileCopy, FileThreads, Moved};
pub(crate) use incoming::Reached;
pub(crate) use locking::PageLocking;
pub(crate) use memory::{Pool, Warming};
pub(crate) use outgoing::Copied;
pub(crate) use passing::{groups as passing_groups, pass};
pub(crate) use peer::{PeerCopy, copy_from_peer, copy_to_peer};
pub(crate) use place::{At, Place};
pub(crate) use registered::Registered;
pub(crate) use shared::{SharedStaging, Staged, copy_staged};
pub(crate) use signals::{raise, signal_groups, tell_peer, wait_for_flag, wait_for_peer};
pub(crate) use start::{copy_in, copy_in_queued, copy_out};
pub(crate) use transfer::{CopySite, DeviceSide, Failed};
pub(crate) use unqueued::Unqueued;
pub(crate) use watch::Watcher;
