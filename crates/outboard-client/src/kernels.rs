//! Kernels that the server has told of when it loaded their modules.

use std::collections::HashMap;

use outboard_wire::ObjectId;
use outboard_wire::notice::Kernels;
use outboard_wire::platform::KernelInfo;
use parking_lot::{Mutex, MutexGuard};

/// Most kernels that are kept; of others the server is asked.
const MOST_KERNELS: usize = 1 << 18;

/// All kernels of each module that has few, in the image's order.
#[derive(Debug, Default)]
pub(crate) struct KnownKernels(Mutex<HashMap<ObjectId, Vec<(String, KernelInfo)>>>);

impl KnownKernels {
    fn all(&self) -> MutexGuard<'_, HashMap<ObjectId, Vec<(String, KernelInfo)>>> {
        self.0.lock()
    }

    /// Stores the list of a module's kernels, which the server has sent.
    pub(crate) fn insert(&self, module: Kernels) {
        let mut all = self.all();
        let known: usize = all.values().map(|kernels| kernels.len() + 1).sum();
        if known + module.kernels.len() < MOST_KERNELS {
            all.insert(module.module, module.kernels);
        }
    }

    /// The kernel of that name; `Some(None)` if the module has none, `None` if that is not known.
    pub(crate) fn find(&self, module: ObjectId, name: &str) -> Option<Option<KernelInfo>> {
        let all = self.all();
        let kernels = all.get(&module)?;
        Some(kernels.iter().find(|(known, _)| known == name).map(|(_, info)| info.clone()))
    }

    /// Names of a module's kernels, if known.
    pub(crate) fn names(&self, module: ObjectId) -> Option<Vec<String>> {
        self.all()
            .get(&module)
            .map(|kernels| kernels.iter().map(|(name, _)| name.clone()).collect())
    }

    /// A module has been unloaded.
    pub(crate) fn forget(&self, module: ObjectId) {
        self.all().remove(&module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_tells_without_end_fills_no_memory() {
        let known = KnownKernels::default();
        let kernels =
            || (0..1000).map(|number| (number.to_string(), KernelInfo::default())).collect();
        (0..1000).for_each(|module| {
            known.insert(Kernels { module: ObjectId(module), kernels: kernels() })
        });
        assert!(known.all().values().map(Vec::len).sum::<usize>() < MOST_KERNELS);
        assert_eq!(
            (known.find(ObjectId::NONE, "nothing"), known.find(ObjectId(999), "nothing")),
            (Some(None), None)
        );
    }

    #[test]
    fn what_was_told_is_known_until_the_module_goes() {
        let known = KnownKernels::default();
        let info = KernelInfo { attributes: vec![1024], params: vec![(0, 8)] };
        assert_eq!(known.find(ObjectId(1), "a"), None);
        known.insert(Kernels {
            module: ObjectId(1),
            kernels: vec![("b".to_owned(), info.clone()), ("a".to_owned(), info.clone())],
        });
        assert_eq!(known.find(ObjectId(1), "a"), Some(Some(info)));
        assert_eq!(known.find(ObjectId(1), "c"), Some(None));
        assert_eq!(known.names(ObjectId(1)), Some(vec!["b".to_owned(), "a".to_owned()]));
        known.forget(ObjectId(1));
        assert_eq!((known.find(ObjectId(1), "a"), known.names(ObjectId(1))), (None, None));
    }
}
