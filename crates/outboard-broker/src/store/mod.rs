//! What the broker keeps: in a file of its own, or with other brokers in an etcd.

mod etcd;
mod file;
mod keeper;
mod key;

pub use etcd::{
    BadEtcd, Candidate, Cluster, EtcdAddress, EtcdError, EtcdStore, Leadership, StandError, Trust,
};
pub use file::FileStore;
#[cfg(test)]
pub(crate) use keeper::ByHand;
pub use keeper::{Failed, Keeper};
pub use key::{add_key, signing_keys};

use crate::desk::{Change, Memory};
use std::path::PathBuf;

/// Why nothing can be kept, or what was kept cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Two would grant the same.
    #[error("another broker uses {}; stop it, or give this one a folder of its own", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder is not as it should be.
    #[error("what the broker keeps in {} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// etcd holds something that a broker cannot use.
    #[error("what the brokers keep in etcd cannot be used: {0}")]
    Strange(String),
    /// Another broker may lead by now, so that this one has written nothing.
    #[error("this broker does not lead any more: {0}")]
    NoLongerLeads(String),
    /// Leases that others believe are signed by a key that this broker does not have.
    #[error(
        "the pool's leases are signed by {key}, and this broker's lease.key is another one: copy \
         lease.key from the folder of a broker that has it"
    )]
    OtherKey {
        /// The key.
        key: String,
    },
}

/// Where the broker keeps what it has decided.
#[derive(Debug)]
pub enum Store {
    /// In a file that no other broker uses.
    File(FileStore),
    /// In an etcd, of which this broker leads.
    Etcd(EtcdStore),
}

impl Store {
    /// All that was kept.
    ///
    /// # Errors
    ///
    /// If it cannot be read: a lease that is not known would be given out again.
    pub fn memory(&mut self) -> Result<Memory, StoreError> {
        match self {
            Store::File(file) => file.memory(),
            Store::Etcd(etcd) => etcd.memory(),
        }
    }

    /// Keeps these changes. They survive a kill at any time once this returns. A kill before may
    /// leave the first of them.
    ///
    /// # Errors
    ///
    /// If they cannot be kept.
    pub fn keep<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> Result<(), StoreError> {
        match self {
            Store::File(file) => file.keep(changes),
            Store::Etcd(etcd) => etcd.keep(changes),
        }
    }
}
