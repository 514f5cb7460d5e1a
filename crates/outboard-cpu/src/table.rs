//! What the front named, by its name.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::Result;
use parking_lot::RwLock;

pub(crate) struct Table<K, V> {
    rows: RwLock<HashMap<K, Arc<V>>>,
    /// What asking for a name that is not there gives.
    missing: CUresult,
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    pub(crate) fn new(missing: CUresult) -> Table<K, V> {
        Table { rows: RwLock::new(HashMap::new()), missing }
    }

    pub(crate) fn get(&self, name: K) -> Result<Arc<V>> {
        self.rows.read().get(&name).cloned().ok_or(self.missing)
    }

    pub(crate) fn insert(&self, name: K, value: V) -> Arc<V> {
        self.insert_shared(name, Arc::new(value))
    }

    /// Names a value that may have other names.
    pub(crate) fn insert_shared(&self, name: K, value: Arc<V>) -> Arc<V> {
        self.rows.write().insert(name, value.clone());
        value
    }

    pub(crate) fn names(&self) -> Vec<K> {
        self.rows.read().keys().copied().collect()
    }

    pub(crate) fn any(&self, condition: impl Fn(&V) -> bool) -> bool {
        self.rows.read().values().any(|value| condition(value))
    }

    /// What is removed is dropped by the caller, not under the lock.
    pub(crate) fn remove(&self, name: K) -> Result<Arc<V>> {
        self.rows.write().remove(&name).ok_or(self.missing)
    }

    pub(crate) fn remove_where(&self, condition: impl Fn(&V) -> bool) -> Vec<Arc<V>> {
        self.rows.write().extract_if(|_, value| condition(value)).map(|(_, value)| value).collect()
    }
}
