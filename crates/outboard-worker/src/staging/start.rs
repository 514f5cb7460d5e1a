//! How a copy starts: queued whole in its stream, or later.

use std::sync::Arc;

use outboard_session::chunks::Cut;

use super::account::Class;
use super::incoming::{Emptying, In, Reached};
use super::later::{Coming, copy_in_later, copy_out_later};
use super::outgoing::{Copied, Filling, Out};
use super::transfer::{CopySite, DeviceSide, Failed};
use super::watch::CopyDescription;
use crate::io::Sink;

/// Takes the bytes of a copy to the device, and queues it. `reached` is run when its stream has
/// come to it, or will not any more.
pub(crate) fn copy_in(
    site: &CopySite<'_>,
    number: u64,
    cut: Cut,
    dst: &DeviceSide,
    reached: Option<Reached>,
) -> Result<(), Failed> {
    let Some((groups, held)) = site.pool.reserve_operations(site.stream, cut) else {
        return copy_in_later(site, number, cut, dst, reached.map_or(Coming::Now, Coming::Asked));
    };
    let transfer = site.transfer(number, groups, None).map_err(Failed::NotStarted)?;
    let late = reached.is_some();
    let copy = In::new(transfer);
    // Bytes may come while the copy is being queued.
    site.bulk
        .receive(number, cut, Arc::clone(&copy) as Arc<dyn Sink>)
        .map_err(Failed::Violation)?;
    let queued = copy.queue(dst, late);
    let what = CopyDescription { to_device: true, way: "lanes", bytes: cut.len() };
    site.watcher.add(Box::new(Emptying::new(copy, reached, Some(held))), what);
    queued.map_err(Failed::BrokeOff)
}

/// The same for a copy that has no staging memory; `ask` asks the client for its bytes.
pub(crate) fn copy_in_queued(
    site: &CopySite<'_>,
    number: u64,
    cut: Cut,
    dst: &DeviceSide,
    ask: Reached,
) -> Result<(), Failed> {
    copy_in_later(site, number, cut, dst, Coming::Asked(ask))
}

/// Queues a copy to the host and starts to send its bytes; later, if there is no memory for them
/// now.
pub(crate) fn copy_out(
    site: &CopySite<'_>,
    number: u64,
    cut: Cut,
    src: &DeviceSide,
) -> Result<Arc<dyn Copied>, Failed> {
    if site.registered.is_some() {
        return copy_out_later(site, number, cut, src);
    }
    let Some((groups, held)) = site.pool.reserve_operations(site.stream, cut) else {
        return copy_out_later(site, number, cut, src);
    };
    let Some(share) =
        site.pool.account().try_reserve(Class::Leaving, groups.staging(), site.watcher)
    else {
        return copy_out_later(site, number, cut, src);
    };
    let transfer = site.transfer(number, groups, Some(share)).map_err(Failed::NotStarted)?;
    let copy = Out::new(transfer);
    // Bytes may go while the copy is being queued.
    let what = CopyDescription { to_device: false, way: "lanes", bytes: cut.len() };
    site.watcher.add(Box::new(Filling::new(Arc::clone(&copy), Some(held))), what);
    copy.queue(src).map_err(Failed::BrokeOff)?;
    Ok(copy)
}
