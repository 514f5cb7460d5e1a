//! Primary contexts that were made before there was a client.

use outboard_abi::{CUcontext, CUctx_flags, CUctx_st};
use outboard_driver::{Table, call};

use crate::objects::Handle;

/// Flags that make a difference to what a program sees. Host memory is mapped with or without the
/// flag for it.
const TELLING_FLAGS: u32 = 0xff & !CUctx_flags::CU_CTX_MAP_HOST.0;

/// Contexts that were made ahead and that no client has opened yet.
#[derive(Default)]
pub(super) struct Kept {
    contexts: Vec<(i32, Handle<CUctx_st>)>,
    /// Releases contexts that no client will open.
    release: Option<std::thread::JoinHandle<()>>,
}

impl Kept {
    /// A context of a device was made ahead.
    pub(super) fn add(&mut self, device: i32, context: CUcontext) {
        self.contexts.push((device, Handle::new(context)));
    }

    /// Takes the context of a device over, with these flags, if it is there and can have them. The
    /// code that takes it releases it once.
    pub(super) fn take(
        &mut self,
        table: &Table,
        device: i32,
        flags: u32,
    ) -> Option<Handle<CUctx_st>> {
        if self.contexts.is_empty() && self.release.is_none() {
            return None;
        }
        let found = self.contexts.iter().position(|(of, _)| *of == device);
        // A process that begins with this device may never use the others, whose memory other
        // sessions could use.
        let taken = found.map(|index| self.contexts.swap_remove(index).1);
        self.give_back(table, |_| false);
        let Some(context) = taken else {
            self.finish();
            return None;
        };
        if has_flags(table, device, flags) {
            return Some(context);
        }
        // Not every driver changes the flags of a context that is active.
        let set = call!(table, cuDevicePrimaryCtxSetFlags_v2(device, flags));
        if set.is_ok() && has_flags(table, device, flags) {
            return Some(context);
        }
        tracing::debug!(
            device,
            flags,
            "a context made ahead has other flags than the client wants"
        );
        let _ = call!(table, cuDevicePrimaryCtxRelease_v2(device));
        None
    }

    /// Gives back the contexts of devices other than those wanted, without waiting for it.
    pub(super) fn give_back(&mut self, table: &Table, wanted: impl Fn(i32) -> bool) {
        let (kept, surplus): (Vec<_>, Vec<_>) =
            self.contexts.drain(..).partition(|(device, _)| wanted(*device));
        self.contexts = kept;
        if surplus.is_empty() {
            return;
        }
        self.finish();
        let table = *table;
        let release = move || {
            for (device, _) in surplus {
                let _ = call!(table, cuDevicePrimaryCtxRelease_v2(device));
            }
        };
        match std::thread::Builder::new().name("release".into()).spawn(release) {
            Ok(thread) => self.release = Some(thread),
            Err(error) => {
                tracing::warn!(%error, "contexts made ahead stay: there is no thread to end them")
            }
        }
    }

    /// Waits until the released contexts have ended.
    fn finish(&mut self) {
        if let Some(thread) = self.release.take() {
            // A panic has ended the process.
            let _ = thread.join();
        }
    }
}

fn has_flags(table: &Table, device: i32, wanted: u32) -> bool {
    let (mut flags, mut active) = (0, 0);
    let asked = call!(table, cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active));
    asked.is_ok() && active != 0 && flags & TELLING_FLAGS == wanted & TELLING_FLAGS
}
