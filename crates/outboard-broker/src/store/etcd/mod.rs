//! An etcd that several brokers of one pool have in common.
//!
//! One broker leads: it has made the key `leader`, which goes with a lease of etcd's that this
//! broker keeps alive. Each of its transactions compares the revision at which it made that key,
//! and the number of its last transaction: what a former leader sends late changes nothing, nor
//! does a transaction that is sent twice. etcd is asked by its gateway for JSON over HTTP.

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
