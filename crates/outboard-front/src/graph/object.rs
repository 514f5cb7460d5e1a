//! User objects: reference-counted resources of the program that graphs keep alive.

use core::ffi::c_void;

use super::model::INVALID;
use crate::backend::Result;
use crate::process::Front;

pub(crate) use crate::parts::graph::object::{Object, Objects};

/// Adds references.
pub(crate) fn retain_all(front: &'static Front, references: &[(u64, u32)]) {
    if references.is_empty() {
        return;
    }
    let mut objects = front.graphs.objects.lock();
    for (object, count) in references {
        if let Some(object) = objects.all.get_mut(object) {
            object.count += u64::from(*count);
        }
    }
}

/// Takes references away. [`run_destructors`] must follow once no lock is held.
pub(crate) fn release_all(front: &'static Front, references: &[(u64, u32)]) {
    if references.is_empty() {
        return;
    }
    let mut objects = front.graphs.objects.lock();
    for (object, count) in references {
        // More than there are is the program's mistake, found where it made it.
        let _ = release(&mut objects, *object, *count);
    }
}

pub(crate) fn release(objects: &mut Objects, handle: u64, count: u32) -> Result<()> {
    let object = objects.all.get_mut(&handle).ok_or(INVALID)?;
    object.count = object.count.checked_sub(u64::from(count)).ok_or(INVALID)?;
    if object.count == 0
        && let Some(object) = objects.all.remove(&handle)
    {
        objects.doomed.push((object.destroy, object.data));
    }
    Ok(())
}

/// Calls the destructors of objects without references, on a thread of its own: they may take their
/// time.
pub(crate) fn run_destructors(front: &'static Front) {
    let doomed = std::mem::take(&mut front.graphs.objects.lock().doomed);
    if doomed.is_empty() {
        return;
    }
    let call = move || {
        for (destroy, data) in doomed {
            // SAFETY: the program gave function and argument for this.
            unsafe { destroy(data as *mut c_void) };
        }
    };
    // Without a thread they are left out: the program may be ending.
    let _ = outboard_threads::start("outboard-objects", call);
}
