//! Kernels of libraries: functions of whichever context they run in.

use std::ffi::CString;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use outboard_abi::CUfunction_attribute;
use parking_lot::Mutex;

use crate::backend::ContextId;
use crate::parts::function::Function;
use crate::parts::library::Library;

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) handle: u64,
    pub(crate) library: Arc<Library>,
    pub(crate) name: CString,
    /// Its functions by context, each by its handle. Changed only with `settings` locked.
    pub(crate) functions: ArcSwap<Vec<(ContextId, u64)>>,
    /// The function that was asked for last: mostly there is one context.
    pub(crate) recent: ArcSwapOption<Function>,
    /// Attributes set for a device, for the contexts that will load the kernel later, in the order
    /// in which they were set first.
    pub(crate) settings: Mutex<Vec<Setting>>,
}

/// An attribute that was set.
pub(crate) struct Setting {
    pub(crate) device: usize,
    pub(crate) attribute: CUfunction_attribute,
    pub(crate) value: i32,
}

impl Kernel {
    /// Forgets the function of a context that has ended.
    pub(crate) fn forget(&self, id: ContextId) {
        let _settings = self.settings.lock();
        self.recent.store(None);
        let known = self.functions.load_full();
        if known.iter().any(|(ctx, _)| *ctx == id) {
            self.functions
                .store(Arc::new(known.iter().filter(|(ctx, _)| *ctx != id).copied().collect()));
        }
    }
}
