//! Host callbacks in the driver's streams: a function of the worker represents each, and asks the
//! client to call the program's function.

use core::ffi::c_void;

use outboard_abi::{CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_wire::request::HOST_CALL;
use outboard_wire::{ContextId, Writer};

use super::answer::Outcome;
use super::client::{Client, Reporter};
use super::output::Printed;

/// What stands for a function of the client's program.
pub(crate) struct HostFunction {
    /// The client's number for it.
    number: u64,
    ctx: ContextId,
    /// Called after an error too.
    always: bool,
    reporter: Reporter,
}

impl HostFunction {
    /// For a command of a context.
    pub(crate) fn new(
        (number, always): (u64, bool),
        ctx: ContextId,
        client: &Client,
    ) -> Result<Box<HostFunction>, CUresult> {
        let reporter = client.reporter().cloned().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        Ok(Box::new(HostFunction { number, ctx, always, reporter }))
    }

    /// Queues it in a stream of the current context.
    pub(crate) fn queue(self: Box<HostFunction>, table: &Table, stream: CUstream) -> Outcome {
        let always = self.always;
        let data = Box::into_raw(self).cast::<c_void>();
        let outcome = if always {
            call!(table, cuStreamAddCallback(stream, Some(with_status), data, 0))
        } else {
            call!(table, cuLaunchHostFunc(stream, Some(plain), data))
        };
        outcome.or_else(|error| {
            // SAFETY: the driver has refused it, and will not call it.
            unsafe { Box::from_raw(data.cast::<HostFunction>()) }.fail(error)
        })
    }

    /// The function cannot be queued: the client hears of it, so that what is always done is.
    pub(crate) fn fail(&self, error: CUresult) -> Outcome {
        let _ = self.reporter.replier().order(HOST_CALL, self.ctx, &self.body(error));
        Err(error)
    }

    fn body(&self, status: CUresult) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u64(self.number);
        writer.u32(status.0);
        writer.into_vec()
    }

    /// The stream has come to it. The client is first told which work before it is done.
    pub(crate) fn run(&self, status: CUresult) {
        self.reporter.report(Printed::Perhaps);
        if let Ok(asked) =
            self.reporter.replier().request(HOST_CALL, self.ctx, &self.body(status), 0)
        {
            // Whatever came of it, the stream goes on.
            let _ = asked.wait();
        }
    }
}

/// Called by the driver, on a thread of its own.
unsafe extern "C" fn plain(data: *mut c_void) {
    // SAFETY: what was queued with this function, which the driver calls once.
    unsafe { Box::from_raw(data.cast::<HostFunction>()) }.run(CUresult::CUDA_SUCCESS);
}

/// As [`plain`].
unsafe extern "C" fn with_status(_stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: what was queued with this function, which the driver calls once.
    unsafe { Box::from_raw(data.cast::<HostFunction>()) }.run(status);
}
