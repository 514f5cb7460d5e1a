//! The one path of every copy: looks up its sides, plans it and queues it.

use outboard_abi::CUresult;

use crate::backend::{
    Backend, BoxCopy, ContextId, Extent, HostPtr, Memory, Rect, Result, Side, StreamId,
};
use crate::capture;
use crate::context::Here;
use crate::copy::{Copy, Method, Resolved, Sides, Wait, plan};
use crate::order::wait_for;
use crate::process::Process;

/// The context and the stream of a copy.
pub(crate) struct Queue {
    pub(crate) here: Here,
    pub(crate) stream: StreamId,
    pub(crate) wait: Wait,
}

impl Queue {
    /// Queues a copy. Everything that copies comes through here.
    ///
    /// # Safety
    /// Host memory that the copy names is the program's to read and write, for as long as CUDA
    /// says.
    pub(crate) unsafe fn submit<B: Backend>(
        &self,
        process: &'static Process<B>,
        copy: &Copy,
    ) -> Result<()> {
        if copy.extent.is_empty() {
            return Ok(());
        }
        let mut sides = copy.resolve(process)?;
        if let Some(outcome) = capture::copy(process, &self.here, self.stream, &sides) {
            return outcome;
        }
        if matches!(sides.dst.side.memory, Memory::Host(_)) {
            self.here.pay()?;
        }
        sides.join_rows()?;
        sides.check(process)?;
        let between_devices = self.wait == Wait::Synchronous && sides.are_of_two_devices(process);
        if between_devices {
            self.finish_work_of_both(process, &sides)?;
        }
        if self.stream == StreamId::LEGACY
            && self.wait != Wait::Synchronous
            && sides.are_of_two_devices(process)
        {
            // SAFETY: by the contract above.
            return unsafe { self.submit_in_order_of_both(process, &sides) };
        }
        // SAFETY: by the contract above.
        unsafe { self.submit_checked(process, &sides, between_devices) }
    }

    /// Queues a copy whose sides have been checked.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn submit_checked<B: Backend>(
        &self,
        process: &'static Process<B>,
        sides: &Sides,
        between_devices: bool,
    ) -> Result<()> {
        let own = self.here.id.server();
        if sides.servers().any(|server| server != own) {
            // SAFETY: by the contract above.
            return unsafe { self.submit_across(process, sides) };
        }
        let plan = plan(
            sides.dst.place(sides.extent),
            sides.src.place(sides.extent),
            sides.extent,
            self.wait,
        );
        // SAFETY: by the contract above.
        unsafe { self.make(process, &sides.as_box(), plan.method)? };
        // Later work of both devices waits for the copy.
        if plan.waits || between_devices { self.synchronize(process) } else { Ok(()) }
    }

    /// Has the back end make a copy that has been checked.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn make<B: Backend>(
        &self,
        process: &'static Process<B>,
        copy: &BoxCopy,
        method: Method,
    ) -> Result<()> {
        let (device, ctx, stream) = (process.backend, self.here.id, self.stream);
        let bytes = copy.extent.width;
        // SAFETY: by the contract above.
        self.here.note(unsafe {
            match (method, copy.dst.memory, copy.src.memory) {
                (Method::OnHost, Memory::Host(dst), Memory::Host(src)) => {
                    self.synchronize(process)?;
                    copy_on_host(copy, dst, src);
                    Ok(())
                }
                (Method::ToDevice(mode), Memory::Device(dst), Memory::Host(src)) => {
                    device.copy_to_device(ctx, dst, src.pointer(), bytes, stream, mode)
                }
                (Method::ToHost(mode), Memory::Host(dst), Memory::Device(src)) => {
                    device.copy_to_host(ctx, dst.pointer(), src, bytes, stream, mode)
                }
                (Method::OnDevice, Memory::Device(dst), Memory::Device(src)) => {
                    device.copy_on_device(ctx, dst, src, rect(copy), stream)
                }
                (Method::Box(mode), ..) => device.copy_box(ctx, copy, stream, mode),
                // The plan names no method that is not for such sides.
                _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        })
    }

    /// Queues a copy with a side that another server has.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    #[cold]
    unsafe fn submit_across<B: Backend>(
        &self,
        process: &'static Process<B>,
        sides: &Sides,
    ) -> Result<()> {
        let copy = sides.crossing(process, self.here.id, self.wait)?;
        let (ctx, stream) = (self.here.id, self.stream);
        // A fault of another server's device is none of this context; its own one meets the next
        // call in it.
        // SAFETY: by the contract above.
        unsafe { process.backend.copy_across(ctx, stream, &copy) }
    }

    /// Queues an asynchronous copy between two devices in the legacy stream: "it does not start
    /// until all commands previously issued to either device have completed and runs to completion
    /// before any commands issued after the copy to either device can start". Streams that are not
    /// to be in step with a legacy stream are not.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    #[cold]
    unsafe fn submit_in_order_of_both<B: Backend>(
        &self,
        process: &'static Process<B>,
        sides: &Sides,
    ) -> Result<()> {
        let own = (self.here.id, self.stream);
        let others: Vec<_> =
            self.contexts(process, sides)?.into_iter().filter(|ctx| *ctx != own.0).collect();
        for other in &others {
            process.note(*other, wait_for(process, own, (*other, StreamId::LEGACY)))?;
        }
        // SAFETY: by the contract above.
        unsafe { self.submit_checked(process, sides, false)? };
        others.iter().try_for_each(|other| wait_for(process, (*other, StreamId::LEGACY), own))
    }

    /// The contexts to which the memory of the sides belongs, destination and source.
    fn contexts<B: Backend>(
        &self,
        process: &'static Process<B>,
        sides: &Sides,
    ) -> Result<[ContextId; 2]> {
        let of = |side: &Resolved| Ok(side.context(process)?.unwrap_or(self.here.id));
        Ok([of(&sides.dst)?, of(&sides.src)?])
    }

    /// Waits for all work of the devices of both sides: a synchronous copy between two devices
    /// comes after it, whichever device is current.
    #[cold]
    fn finish_work_of_both<B: Backend>(
        &self,
        process: &'static Process<B>,
        sides: &Sides,
    ) -> Result<()> {
        for ctx in self.contexts(process, sides)? {
            process.note(ctx, process.backend.context_synchronize(ctx))?;
        }
        Ok(())
    }

    fn synchronize<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        self.here.note(process.backend.stream_synchronize(self.here.id, self.stream))
    }
}

/// The rows of a copy of one slice.
fn rect(copy: &BoxCopy) -> Rect {
    let Extent { width, height, .. } = copy.extent;
    let pitch = |side: &Side| if height == 1 { width } else { side.layout.pitch };
    Rect { width, height, dst_pitch: pitch(&copy.dst), src_pitch: pitch(&copy.src) }
}

/// Copies from host memory to host memory, which may overlap.
///
/// # Safety
/// As [`Queue::submit`].
unsafe fn copy_on_host(copy: &BoxCopy, dst: HostPtr, src: HostPtr) {
    let rows = copy.extent.rows(copy.dst.layout).zip(copy.extent.rows(copy.src.layout));
    for ((to, bytes), (from, _)) in rows {
        // SAFETY: by the contract above.
        unsafe {
            core::ptr::copy::<u8>(
                src.offset(from).pointer(),
                dst.offset(to).pointer(),
                bytes as usize,
            )
        };
    }
}
