//! What several tests of a program need, and the first of them finds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// A value for each key. Who asks first finds it; others with the same key wait for that, and those
/// with another one do not.
#[derive(Debug)]
pub struct Found<K, V> {
    values: Mutex<BTreeMap<K, Arc<OnceLock<V>>>>,
}

impl<K, V> Default for Found<K, V> {
    fn default() -> Found<K, V> {
        Found { values: Mutex::default() }
    }
}

impl<K: Ord, V: Clone> Found<K, V> {
    /// The value of a key.
    ///
    /// # Panics
    /// If `find` does.
    pub fn get(&self, key: K, find: impl FnOnce() -> V) -> V {
        let value = {
            let mut values = self.values.lock().expect("no thread panics with it");
            Arc::clone(values.entry(key).or_default())
        };
        value.get_or_init(find).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_value_is_found_once_whoever_asks() {
        let (found, times) = (Found::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (found, times) = (&found, &times);
                scope.spawn(move || {
                    let find = || {
                        times.fetch_add(1, Ordering::Relaxed);
                        thread % 2
                    };
                    assert_eq!(found.get(thread % 2, find), thread % 2);
                });
            }
        });
        assert_eq!(times.into_inner(), 2);
    }
}
