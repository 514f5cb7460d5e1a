//! Functions of the program that a stream calls of the software device.

use outboard_front::backend::{ContextId, HostCall, HostCalls, Result, StreamId};

use crate::cpu::{Cpu, lane};
use crate::work::Work;

impl HostCalls for Cpu {
    fn host_call(&'static self, ctx: ContextId, stream: StreamId, call: HostCall) -> Result<()> {
        let context = self.context(ctx)?;
        let mut call = Some(call);
        let work = Work::Host(Box::new(move |status| {
            let Some(call) = call.take() else { return };
            let _one_at_a_time = context.calling.lock();
            context.output.flush();
            call.run(status);
        }));
        self.scheduler.submit(ctx, lane(ctx, stream), work, None).map(drop)
    }
}
