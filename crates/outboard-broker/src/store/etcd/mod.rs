//! An etcd that several brokers of one pool have in common.
//!
//! One broker leads: it has put the key `leader`, and puts `leader/alive` again and again. Each of
//! its transactions requires that `leader` is as it has put it, and names the transaction before:
//! what a former leader sends late changes nothing, nor does a transaction that is sent twice. etcd
//! is asked by its gateway for JSON over HTTP.

mod address;
mod calls;
mod clock;
mod election;
mod kept;
mod line;
mod records;

pub use address::{BadEtcd, Cluster, EtcdAddress, Trust};
pub use election::{Candidate, Leadership, StandError};
pub use kept::EtcdStore;
pub use line::EtcdError;
